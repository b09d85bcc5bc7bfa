"""Methods: a precision, a drafter, a shape and a backend, expanded from the configuration.

The axes stay apart: an entry of `methods` names a precision and, optionally, a drafter, a shape and
an acceptance rule; a chain expands over `sweep.draft_length`. Identifiers are made from the axes
alone, so that the same method has the same identifier in every sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.acceptance import Acceptance, read_acceptance
from harness.drafters import (
    TARGET,
    check_precision,
    drafter_id,
    drafter_name,
    most_pending,
    nested,
    precisions_by_model,
    read_drafter,
    reads_quantized,
)
from harness.errors import ConfigError, refuse_unknown_keys, unknown
from harness.shapes import Shape, drafted, shape_id, shape_name, shapes_of
from harness.vocabulary import KV_PRECISIONS, quantized

ENTRY_KEYS = ("precision", "drafter", "shape", "name", "backend", "kv_precision", "acceptance")


@dataclass(frozen=True)
class Method:
    """One way to decode, as records and the worker protocol name it.

    `drafter` and `shape` are the JSON objects of docs/protocol.md. `arm` is baseline, quantization,
    speculation or combined; `quantized_drafter` marks a drafter that reads 4- or 8-bit weights, so
    that no reader takes such a speculation for one without quantization. `is_baseline` marks the
    one method that all others of its group are compared with.
    """

    method_id: str
    name: str
    arm: str
    backend: str
    precision: str
    kv_precision: str
    drafter: Mapping[str, Any]
    shape: Mapping[str, Any]
    acceptance: Acceptance
    quantized_drafter: bool
    is_baseline: bool

    @property
    def plain(self) -> bool:
        """True without a drafter."""
        return bool(self.drafter["kind"] == "none")

    @property
    def drafted(self) -> int:
        """Most tokens that one round drafts."""
        return drafted(self.shape)

    @property
    def pending(self) -> int:
        """Most tokens beyond the committed ones that a round puts into any cache."""
        return most_pending(self.drafter, self.shape)

    def request(self, seed: int = 0) -> dict[str, Any]:
        """The `method` of a worker's `run` request; `seed` decides replayed outcomes."""
        return {
            "precision": self.precision,
            "kv_precision": self.kv_precision,
            "drafter": dict(self.drafter),
            "shape": dict(self.shape),
            "acceptance": self.acceptance.request(seed),
        }

    def precisions(self) -> set[str]:
        """Precisions of the target's weights that the method computes with."""
        return {self.precision} | precisions_by_model(self.drafter).get(TARGET, set())

    def drafter_precisions(self) -> dict[str, set[str]]:
        """Precisions of each drafter with weights of its own, by id."""
        found = precisions_by_model(self.drafter)
        return {model: used for model, used in found.items() if model != TARGET}

    def kinds(self) -> tuple[set[str], set[str]]:
        """(drafters, shapes) that a backend must know to run the method."""
        parts = [part for part, _ in nested(self.drafter)]
        inner = [part["inner_shape"] for part in parts if "inner_shape" in part]
        shapes = [self.shape, *self.shape.get("candidates", ()), *inner]
        return {str(part["kind"]) for part in parts}, {str(shape["kind"]) for shape in shapes}


def expand(
    entries: Sequence[Mapping[str, Any]],
    *,
    draft_lengths: Sequence[int],
    precisions: Sequence[str],
    baseline: str,
    backends: Sequence[str],
    acceptance: Any = "greedy",
    profiles: Mapping[str, Any] | None = None,
) -> list[Method]:
    """The methods of one group, baseline first.

    Entries whose precision is not among `precisions` are dropped, save for the plain baseline,
    which every comparison needs. The first of `backends` serves entries that name none, and
    `acceptance` is the rule of those that name none; `profiles` holds replay profiles by name.
    Raises ConfigError that names the entry.
    """
    default = backends[0]
    methods: list[Method] = []
    for number, entry in enumerate(entries):
        place = f"methods[{number}]"
        checked = _check_entry(entry, place, backends)
        drafter = read_drafter(checked.get("drafter"), f"{place}.drafter")
        precision = str(checked["precision"])
        backend = str(checked.get("backend", default))
        as_baseline = (
            drafter["kind"] == "none"
            and precision == baseline
            and backend == default
            and checked.get("acceptance", acceptance) == acceptance
        )
        if precision not in precisions and not as_baseline:
            continue
        rule = checked.get("acceptance", acceptance)
        rule_place = f"{place}.acceptance" if "acceptance" in checked else "acceptance"
        for shape in shapes_of(checked.get("shape"), drafter, draft_lengths, f"{place}.shape"):
            accept = read_acceptance(rule, drafter, shape, profiles or {}, rule_place)
            methods.append(
                _method(checked, drafter, shape, accept, baseline, default, backend, as_baseline)
            )
    methods.sort(key=lambda method: not method.is_baseline)
    if not methods or not methods[0].is_baseline:
        raise ConfigError(
            f"methods: the baseline {baseline!r} is missing. Add an entry "
            f"`{{precision: {baseline}}}` without a drafter, or set `baseline`."
        )
    _refuse_doubles(methods)
    return methods


def _check_entry(
    entry: Mapping[str, Any], place: str, backends: Sequence[str]
) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping) or "precision" not in entry:
        raise ConfigError(
            f"{place}: a method needs a `precision`, for example {{precision: w4a8}}."
        )
    refuse_unknown_keys(entry, ENTRY_KEYS, place)
    check_precision(entry["precision"], f"{place}.precision")
    if "kv_precision" in entry and entry["kv_precision"] not in KV_PRECISIONS:
        raise unknown(
            "kv_precision", str(entry["kv_precision"]), KV_PRECISIONS, f"{place}.kv_precision"
        )
    if "backend" in entry and entry["backend"] not in backends:
        raise unknown("backend", str(entry["backend"]), backends, f"{place}.backend")
    return entry


def _method(
    entry: Mapping[str, Any],
    drafter: Mapping[str, Any],
    shape: Shape,
    acceptance: Acceptance,
    baseline: str,
    default_backend: str,
    backend: str,
    is_baseline: bool,
) -> Method:
    precision = str(entry["precision"])
    kv_precision = str(entry.get("kv_precision", "kv16"))
    plain = drafter["kind"] == "none"
    parts = [precision if kv_precision == "kv16" else f"{precision}-{kv_precision}"]
    if not plain:
        parts.append(f"{drafter_id(drafter)}-{shape_id(shape, str(drafter['kind']))}")
    method_id = "+".join(parts) + acceptance.suffix
    if backend != default_backend:
        method_id += f"@{backend}"
    as_baseline = precision == baseline or not quantized(precision)
    if plain:
        arm = "baseline" if as_baseline else "quantization"
    else:
        arm = "speculation" if as_baseline else "combined"
    return Method(
        method_id=method_id,
        name=_display_name(entry.get("name"), precision, drafter, shape, backend, default_backend),
        arm=arm,
        backend=backend,
        precision=precision,
        kv_precision=kv_precision,
        drafter=drafter,
        shape=shape,
        acceptance=acceptance,
        quantized_drafter=reads_quantized(drafter),
        is_baseline=is_baseline,
    )


def _display_name(
    own: Any,
    precision: str,
    drafter: Mapping[str, Any],
    shape: Shape,
    backend: str,
    default_backend: str,
) -> str:
    name = str(own) if own else precision
    if drafter["kind"] != "none":
        if not own:
            name += f" + {drafter_name(drafter)}"
        name += f", {shape_name(shape)}"
    return name if backend == default_backend else f"{name} ({backend})"


def _refuse_doubles(methods: Sequence[Method]) -> None:
    for key in ("method_id", "name"):
        seen: set[str] = set()
        for method in methods:
            value = getattr(method, key)
            if value in seen:
                raise ConfigError(
                    f"methods: two methods are called {value!r}. Give one of them another `name` "
                    "or remove it."
                )
            seen.add(value)
