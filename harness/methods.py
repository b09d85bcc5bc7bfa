"""Methods: a precision, a drafter, a shape and a backend, expanded from the configuration.

The three axes stay apart: an entry of `methods` names a precision and, optionally, a drafter and a
shape; a chain expands over `sweep.draft_length`. Identifiers are made from the axes alone, so that
the same method has the same identifier in every sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import ConfigError, unknown
from harness.vocabulary import (
    ACCEPTANCE,
    DRAFTERS,
    KV_PRECISIONS,
    MAX_DRAFTED,
    PRECISIONS,
    SHAPES,
    quantized,
)

ENTRY_KEYS = ("precision", "drafter", "shape", "name", "backend", "kv_precision", "acceptance")
DRAFTER_KEYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "self": ("precision",),
    "ngram": ("max_ngram", "min_ngram"),
    "model": ("id", "precision"),
    "head": ("id", "precision"),
    "cascade": ("id", "precision", "inner", "inner_shape"),
}
NGRAM_DEFAULTS = {"max_ngram": 3, "min_ngram": 1}


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
    acceptance: str
    quantized_drafter: bool
    is_baseline: bool

    @property
    def plain(self) -> bool:
        """True without a drafter."""
        return bool(self.drafter["kind"] == "none")

    @property
    def drafted(self) -> int:
        """Most tokens that one round drafts."""
        return int(self.shape.get("gamma", self.shape.get("nodes", 0)))

    def request(self) -> dict[str, Any]:
        """The `method` of a worker's `run` request."""
        return {
            "precision": self.precision,
            "kv_precision": self.kv_precision,
            "drafter": dict(self.drafter),
            "shape": dict(self.shape),
            "acceptance": {"kind": self.acceptance},
        }

    def precisions(self) -> set[str]:
        """Precisions of the target's weights that the method computes with."""
        own = {self.precision}
        if self.drafter["kind"] == "self":
            own.add(str(self.drafter["precision"]))
        return own


def expand(
    entries: Sequence[Mapping[str, Any]],
    *,
    draft_lengths: Sequence[int],
    precisions: Sequence[str],
    baseline: str,
    backends: Sequence[str],
) -> list[Method]:
    """The methods of one group, baseline first.

    Entries whose precision is not among `precisions` are dropped, save for the plain baseline,
    which every comparison needs. The first of `backends` serves entries that name none. Raises
    ConfigError that names the entry.
    """
    default = backends[0]
    methods: list[Method] = []
    for number, entry in enumerate(entries):
        place = f"methods[{number}]"
        checked = _check_entry(entry, place, backends)
        drafter = _drafter(checked.get("drafter"), f"{place}.drafter")
        precision = str(checked["precision"])
        backend = str(checked.get("backend", default))
        is_baseline = drafter["kind"] == "none" and precision == baseline and backend == default
        if precision not in precisions and not is_baseline:
            continue
        for shape in _shapes(checked.get("shape"), drafter, draft_lengths, f"{place}.shape"):
            methods.append(
                _method(checked, drafter, shape, baseline, default, backend, is_baseline)
            )
    methods.sort(key=lambda method: not method.is_baseline)
    if not methods or not methods[0].is_baseline:
        raise ConfigError(
            f"methods: the baseline {baseline!r} is missing. Add an entry "
            f"`{{precision: {baseline}}}` without a drafter, or set `baseline`."
        )
    _refuse_doubles(methods)
    return methods


def check_precision(name: Any, place: str) -> str:
    """`name` where it is a known precision; raises ConfigError with the near names otherwise."""
    if name not in PRECISIONS:
        raise unknown("precision", str(name), PRECISIONS, place)
    return str(name)


def _check_entry(
    entry: Mapping[str, Any], place: str, backends: Sequence[str]
) -> Mapping[str, Any]:
    if not isinstance(entry, Mapping) or "precision" not in entry:
        raise ConfigError(
            f"{place}: a method needs a `precision`, for example {{precision: w4a8}}."
        )
    _refuse_unknown_keys(entry, ENTRY_KEYS, place)
    check_precision(entry["precision"], f"{place}.precision")
    for key, known in (("kv_precision", KV_PRECISIONS), ("acceptance", ACCEPTANCE)):
        if key in entry and entry[key] not in known:
            raise unknown(key, str(entry[key]), known, f"{place}.{key}")
    if "backend" in entry and entry["backend"] not in backends:
        raise unknown("backend", str(entry["backend"]), backends, f"{place}.backend")
    return entry


def _refuse_unknown_keys(given: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    for key in given:
        if key not in known:
            raise unknown("key", str(key), known, place)


def _drafter(given: Any, place: str) -> dict[str, Any]:
    """The drafter's JSON object; a bare name stands for its kind."""
    if given is None:
        return {"kind": "none"}
    drafter: dict[str, Any] = {"kind": given} if isinstance(given, str) else dict(given)
    kind = drafter.get("kind")
    if kind not in DRAFTERS:
        raise unknown("drafter", str(kind), DRAFTERS, place)
    _refuse_unknown_keys(drafter, ("kind", *DRAFTER_KEYS[kind]), place)
    if kind == "ngram":
        drafter = {**drafter, **{k: drafter.get(k, v) for k, v in NGRAM_DEFAULTS.items()}}
    for key in DRAFTER_KEYS[kind]:
        if key not in drafter:
            raise ConfigError(f"{place}: the drafter {kind!r} needs `{key}`.")
    if "precision" in drafter:
        check_precision(drafter["precision"], f"{place}.precision")
    if kind == "cascade":
        drafter["inner"] = _drafter(drafter["inner"], f"{place}.inner")
        drafter["inner_shape"] = dict(drafter["inner_shape"])
    return drafter


def _shapes(
    given: Any, drafter: Mapping[str, Any], draft_lengths: Sequence[int], place: str
) -> list[dict[str, Any]]:
    """One shape for each draft length where the shape is a chain without a length of its own."""
    if drafter["kind"] == "none":
        if given not in (None, "none"):
            raise ConfigError(f"{place}: a method without a drafter has no shape.")
        return [{"kind": "none"}]
    shape = {"kind": given or "chain"} if given is None or isinstance(given, str) else dict(given)
    kind = shape.get("kind")
    if kind not in SHAPES or kind == "none":
        raise unknown("shape", str(kind), (s for s in SHAPES if s != "none"), place)
    if kind == "chain":
        _refuse_unknown_keys(shape, ("kind", "gamma"), place)
        if "gamma" in shape:
            return [{"kind": "chain", "gamma": check_drafted(shape["gamma"], f"{place}.gamma")}]
        return [{"kind": "chain", "gamma": gamma} for gamma in draft_lengths]
    _refuse_unknown_keys(shape, ("kind", "depth", "top_k", "nodes"), place)
    for key in ("depth", "top_k", "nodes"):
        check_drafted(shape.get(key), f"{place}.{key}")
    return [shape]


def check_drafted(value: Any, place: str) -> int:
    """`value` where a round may draft that many tokens; raises ConfigError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_DRAFTED:
        raise ConfigError(
            f"{place}={value}: a round drafts a whole number of tokens from 1 to {MAX_DRAFTED}. "
            "Leave the drafter out for decoding without a draft."
        )
    return value


def _method(
    entry: Mapping[str, Any],
    drafter: Mapping[str, Any],
    shape: Mapping[str, Any],
    baseline: str,
    default_backend: str,
    backend: str,
    is_baseline: bool,
) -> Method:
    precision = str(entry["precision"])
    kv_precision = str(entry.get("kv_precision", "kv16"))
    acceptance = str(entry.get("acceptance", "greedy"))
    plain = drafter["kind"] == "none"
    parts = [precision if kv_precision == "kv16" else f"{precision}-{kv_precision}"]
    if not plain:
        parts.append(f"{_drafter_id(drafter)}-{_shape_id(shape)}")
    method_id = "+".join(parts)
    if acceptance != "greedy":
        method_id += f"~{acceptance}"
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
        quantized_drafter=_reads_quantized(drafter),
        is_baseline=is_baseline,
    )


def _drafter_id(drafter: Mapping[str, Any]) -> str:
    kind = str(drafter["kind"])
    parts = [kind, *(str(drafter[key]) for key in ("id", "precision") if key in drafter)]
    if kind == "ngram" and {key: drafter[key] for key in NGRAM_DEFAULTS} != NGRAM_DEFAULTS:
        parts += [str(drafter["max_ngram"]), str(drafter["min_ngram"])]
    if kind == "cascade":
        parts.append(f"({_drafter_id(drafter['inner'])}-{_shape_id(drafter['inner_shape'])})")
    return "-".join(parts)


def _shape_id(shape: Mapping[str, Any]) -> str:
    if shape["kind"] == "chain":
        return f"chain{shape['gamma']}"
    return f"tree{shape['depth']}x{shape['top_k']}x{shape['nodes']}"


def _display_name(
    own: Any,
    precision: str,
    drafter: Mapping[str, Any],
    shape: Mapping[str, Any],
    backend: str,
    default_backend: str,
) -> str:
    name = str(own) if own else precision
    if drafter["kind"] != "none":
        if not own:
            name += f" + {_drafter_name(drafter)}"
        if shape["kind"] == "chain":
            name += f", γ={shape['gamma']}"
        else:
            name += f", tree of {shape['nodes']}"
    return name if backend == default_backend else f"{name} ({backend})"


def _drafter_name(drafter: Mapping[str, Any]) -> str:
    inside = [str(drafter[key]) for key in ("id", "precision") if key in drafter]
    if drafter["kind"] == "cascade":
        inside.append(_drafter_name(drafter["inner"]))
    return f"{drafter['kind']}({', '.join(inside)})" if inside else str(drafter["kind"])


def _reads_quantized(drafter: Mapping[str, Any]) -> bool:
    if drafter["kind"] == "cascade" and _reads_quantized(drafter["inner"]):
        return True
    return quantized(str(drafter.get("precision", "")))


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
