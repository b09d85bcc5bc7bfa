"""Drafters with weights of their own: the files under `model.drafters`, checked before any timing.

An entry names a packed file (`path`) or a shape without trained weights (`synthetic`), and for a
draft head whose hidden states it reads (`target`): those of the target, or of another drafter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import model_file
from harness.drafters import TARGET, nested
from harness.errors import ConfigError, near, refuse_unknown_keys
from harness.methods import Method
from harness.model_file import ModelFile
from harness.synthetic_shape import checked_drafter

HEADS = ("eagle2", "eagle3")
_HASH_SHOWN = 12


@dataclass(frozen=True)
class DrafterSettings:
    """An entry of `model.drafters`: `path` or `synthetic` is set, never both."""

    id: str
    path: Path | None
    synthetic: Mapping[str, Any] | None = field(hash=False)
    target: str
    made_by: str | None

    @property
    def place(self) -> str:
        """The entry's configuration key."""
        return f"model.drafters.{self.id}"


@dataclass(frozen=True)
class DrafterFile:
    """A drafter that a sweep uses; `metadata` is that of its file, None where it is synthetic."""

    settings: DrafterSettings
    content_hash: str
    metadata: Mapping[str, Any] | None = field(hash=False)

    def request(self) -> dict[str, Any]:
        """The fields of the drafter in a worker's `load` request, without its precisions."""
        settings = self.settings
        source: dict[str, Any] = (
            {"synthetic": dict(settings.synthetic)}
            if settings.synthetic is not None
            else {"path": str(settings.path)}
        )
        is_head = self.is_head
        return {"id": settings.id, **source, **({"target": settings.target} if is_head else {})}

    def summary(self) -> dict[str, Any]:
        """What records of the environment keep of the drafter."""
        keys = ("name", "architecture", "weight_format", "source")
        path, known = self.settings.path, self.metadata or {}
        return {
            "path": None if path is None else str(path),
            "synthetic": self.settings.synthetic,
            "content_hash": self.content_hash,
            **{key: known.get(key) for key in keys},
        }

    @property
    def is_head(self) -> bool:
        """True for a draft head, which reads hidden states of what it drafts for."""
        shape = self.metadata if self.metadata is not None else self.settings.synthetic
        return (shape or {}).get("architecture") in HEADS


def read_drafter_settings(given: Any) -> dict[str, DrafterSettings]:
    """The entries by id. Raises ConfigError naming the key. Files are not opened."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigError("model.drafters: this maps ids to files, for example {small: {path: F}}.")
    found = {}
    for name, entry in given.items():
        place = f"model.drafters.{name}"
        if name == TARGET:
            raise ConfigError(f"{place}: this name stands for the target. Choose another one.")
        if not isinstance(entry, Mapping) or ("path" in entry) == ("synthetic" in entry):
            raise ConfigError(f"{place}: a drafter has either a `path` or a `synthetic` shape.")
        refuse_unknown_keys(entry, ("path", "synthetic", "target", "made_by"), place)
        found[str(name)] = DrafterSettings(
            id=str(name),
            path=Path(str(entry["path"])).expanduser() if "path" in entry else None,
            synthetic=(
                checked_drafter(entry["synthetic"], f"{place}.synthetic")
                if "synthetic" in entry
                else None
            ),
            target=str(entry.get("target", TARGET)),
            made_by=entry.get("made_by"),
        )
    return found


def read_drafters(
    settings: Mapping[str, DrafterSettings], methods: Iterable[Method], target: ModelFile
) -> dict[str, DrafterFile]:
    """Open and check the drafters that `methods` use, by id.

    Raises ConfigError for an id that is not there, a missing or broken file, another vocabulary or
    tokenizer than the target's, a head of another target, and a kind that the file is not.
    """
    found: dict[str, DrafterFile] = {}
    for method in methods:
        for part, drafted_for in nested(method.drafter):
            name = part.get("id")
            if name is None:
                continue
            if name not in found:
                found[str(name)] = _open(str(name), settings, method)
                _check_vocabulary(found[str(name)], target)
            _check_kind(found[str(name)], str(part["kind"]), drafted_for, method)
    for drafter in found.values():
        if drafter.is_head:
            _check_target(drafter, found, target)
    return found


def _open(name: str, settings: Mapping[str, DrafterSettings], method: Method) -> DrafterFile:
    if name not in settings:
        raise ConfigError(
            f"methods: {method.name!r} uses the drafter {name!r}, which is not under "
            f"model.drafters. {near(name, settings)}"
        )
    entry = settings[name]
    if entry.path is None:
        text = json.dumps(entry.synthetic, sort_keys=True)
        return DrafterFile(entry, hashlib.sha256(text.encode()).hexdigest(), None)
    try:
        file = model_file.read(entry.path, made_by=entry.made_by)
    except ConfigError as error:
        raise ConfigError(f"{entry.place}: {error}") from error
    return DrafterFile(entry, file.content_hash, file.metadata)


def _check_vocabulary(drafter: DrafterFile, target: ModelFile) -> None:
    place, path = drafter.settings.place, drafter.settings.path
    shape = drafter.metadata if drafter.metadata is not None else drafter.settings.synthetic
    own, wanted = (shape or {}).get("vocab_size"), target.metadata["vocab_size"]
    if own is not None and int(own) != int(wanted):
        raise ConfigError(
            f"{place}: {path or 'its synthetic shape'} has a vocabulary of {own} tokens, and "
            f"{target.name} has {wanted}. A drafter needs the target's own vocabulary."
        )
    text = (drafter.metadata or {}).get("tokenizer")
    theirs = target.metadata.get("tokenizer")
    if text and theirs and text != theirs and _tokens(text) != _tokens(theirs):
        raise ConfigError(
            f"{place}: {path} has another tokenizer than {target.name}: the same token means "
            "another text. Choose a drafter that was trained with the target's tokenizer."
        )


def _tokens(tokenizer: str) -> dict[str, int]:
    """Token texts and their ids, added ones included."""
    content = json.loads(tokenizer)
    vocabulary = content["model"].get("vocab") or {}
    pairs = vocabulary.items() if isinstance(vocabulary, Mapping) else enumerate_tokens(vocabulary)
    added = {str(entry["content"]): int(entry["id"]) for entry in content.get("added_tokens") or []}
    return {**{str(token): int(number) for token, number in pairs}, **added}


def enumerate_tokens(vocabulary: Iterable[Any]) -> list[tuple[str, int]]:
    """(token, id) of a vocabulary that is a list of (token, score), as Unigram models have it."""
    return [(str(entry[0]), number) for number, entry in enumerate(vocabulary)]


def _check_kind(drafter: DrafterFile, kind: str, drafted_for: str, method: Method) -> None:
    settings = drafter.settings
    if drafter.is_head != (kind == "head"):
        what = "a draft head" if drafter.is_head else "a whole model"
        needed = "head" if drafter.is_head else "model"
        raise ConfigError(
            f"{settings.place}: {settings.path or 'its synthetic shape'} is {what}, and "
            f"{method.name!r} uses it as {kind!r}. Write `kind: {needed}`."
        )
    if kind == "head" and settings.target != drafted_for:
        raise ConfigError(
            f"{settings.place}: this head reads the hidden states of {settings.target!r}, and in "
            f"{method.name!r} it drafts for {drafted_for!r}. Use the head of that model."
        )


def _check_target(
    drafter: DrafterFile, others: Mapping[str, DrafterFile], target: ModelFile
) -> None:
    settings = drafter.settings
    if settings.synthetic is not None:
        _check_fit(settings, settings.synthetic, others, target)
        return
    trained_for = ((drafter.metadata or {}).get("target") or {}).get("content_hash")
    read = target.content_hash if settings.target == TARGET else None
    name = target.name
    if settings.target in others:
        read, name = others[settings.target].content_hash, settings.target
    if trained_for != read:
        raise ConfigError(
            f"{settings.place}: {settings.path} was trained for another target: it names the model "
            f"{str(trained_for)[:_HASH_SHOWN]}, and {name} is {str(read)[:_HASH_SHOWN]}. Train a "
            "head for this model with `python -m backends.train`, or import one with "
            "`python -m backends.pack head`."
        )


def _check_fit(
    settings: DrafterSettings,
    head: Mapping[str, Any],
    others: Mapping[str, DrafterFile],
    target: ModelFile,
) -> None:
    """A head without a file fits any model of the width and depth that it names."""
    read: Mapping[str, Any] = target.metadata
    if settings.target in others:
        other = others[settings.target]
        read = other.metadata or other.settings.synthetic or {}
    for key in ("hidden_size", "num_layers"):
        if int(head["target"][key]) != int(read[key]):
            raise ConfigError(
                f"{settings.place}.synthetic.target.{key}={head['target'][key]}: {settings.target} "
                f"has {read[key]}. Give the head the shape of its target."
            )
