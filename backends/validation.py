"""Checks of requests, shared by all workers written in Python.

Standard library and Python 3.8 syntax only. Every function raises RequestError: `bad_request` for
what the protocol does not allow, `unsupported` for what it allows and this worker does not serve.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from backends.protocol import (
    MAX_DRAFTED,
    TRACE_LEVELS,
    ForwardRequest,
    LoadRequest,
    Method,
    RequestError,
    RunRequest,
    ScoreRequest,
)

PRECISIONS = (
    "fp16", "bf16", "w8a8", "w4a16", "w4a8", "w4a4",
    "w4a4_g16", "w4a4_qkv8", "w4a4_od8", "w4a4_g16_qkv8", "w4a4_g16_od8",
)  # fmt: skip
DRAFTERS = ("none", "self", "model", "head", "ngram", "cascade")
SHAPES = ("none", "chain", "tree", "auto")
ACCEPTANCE = ("greedy", "sampling", "replay")
MAX_REPEATS = 100000
_ABSENT = object()


class Loaded(NamedTuple):
    """What the last `load` fixed, as far as later requests must fit it."""

    precisions: tuple[str, ...]
    drafter_ids: tuple[str, ...]
    max_context: int
    max_batch: int
    vocab_size: int


def near(name: object, known: Iterable[str]) -> str:
    """A sentence that lists the known names, the nearest first where one is near."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, 1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return hint + "Known: {}.".format(", ".join(names))


def validate_load(request: Mapping[str, Any], capabilities: Mapping[str, Any]) -> LoadRequest:
    """The `load` request with its defaults filled in."""
    model = _object(request, "model")
    if ("path" in model) == ("synthetic" in model):
        raise _bad("'model' needs either 'path' or 'synthetic'.")
    if "path" in model and not isinstance(model["path"], str):
        raise _bad("'model.path' is not a text.")
    precisions = _list(request, "precisions")
    if not precisions:
        raise _bad("'precisions' is empty: name all that methods will use.")
    for precision in precisions:
        _name(precision, "precision", PRECISIONS, capabilities["precisions"])
    drafters = _list(request, "drafters", [])
    for index, drafter in enumerate(drafters):
        _check_drafter_file(drafter, f"'drafters[{index}]'", capabilities)
    return {
        "model": dict(model),
        "precisions": precisions,
        "drafters": drafters,
        "max_context": _integer(request, "max_context", 1, 1 << 24),
        "max_batch": _integer(request, "max_batch", 1, capabilities["max_batch"]),
        "seed": _integer(request, "seed", 0, (1 << 63) - 1, 0),
    }


def _check_drafter_file(drafter: Any, place: str, capabilities: Mapping[str, Any]) -> None:
    if not isinstance(drafter, dict) or not isinstance(drafter.get("id"), str):
        raise _bad(f"{place} needs the text 'id'.")
    if ("path" in drafter) == ("synthetic" in drafter):
        raise _bad(f"{place} needs either 'path' or 'synthetic'.")
    precisions = drafter.get("precisions")
    if not isinstance(precisions, list) or not precisions:
        raise _bad(f"{place} needs the list 'precisions', which is not empty.")
    for precision in precisions:
        _name(precision, "precision", PRECISIONS, capabilities["precisions"])


def validate_run(
    request: Mapping[str, Any], capabilities: Mapping[str, Any], loaded: Loaded
) -> RunRequest:
    """The `run` request with its defaults filled in and one `max_new_tokens` a prompt."""
    method = validate_method(_object(request, "method"), capabilities, loaded)
    prompts = _sequences(request, "prompts", loaded, shortest=1)
    if not prompts:
        raise _bad("'prompts' is empty.")
    limits = request.get("max_new_tokens")
    if not isinstance(limits, list):
        limits = [limits] * len(prompts)
    if len(limits) != len(prompts):
        raise _bad(f"'max_new_tokens' has {len(limits)} entries for {len(prompts)} prompts.")
    drafted = _drafted(method)
    for index, (prompt, limit) in enumerate(zip(prompts, limits)):  # noqa: B905
        if not _is_integer(limit) or limit < 1:
            raise _bad(f"'max_new_tokens' of prompt {index} is {limit!r}, not a positive integer.")
        if len(prompt) + limit + drafted > loaded.max_context:
            raise _bad(
                f"prompt {index} needs {len(prompt)} + {limit} + {drafted} tokens (prompt, output, "
                f"drafted); the model was loaded with max_context {loaded.max_context}."
            )
    arrivals = request.get("arrivals")
    if arrivals is not None:
        arrivals = _list(request, "arrivals")
        if len(arrivals) != len(prompts) or not all(_is_number(at) and at >= 0 for at in arrivals):
            raise _bad("'arrivals' needs one number of seconds, 0 or more, for each prompt.")
    trace = request.get("trace", "none")
    _name(trace, "trace level", TRACE_LEVELS, capabilities["trace"])
    trace_path = request.get("trace_path")
    if trace == "tokens" and not isinstance(trace_path, str):
        raise _bad("'trace' is 'tokens', so that 'trace_path' must name a file.")
    sampling = request.get("sampling")
    if (sampling is None) == (method["acceptance"]["kind"] == "sampling"):
        raise _bad("'sampling' is needed for the acceptance 'sampling' and for no other.")
    return {
        "method": method,
        "prompts": prompts,
        "arrivals": arrivals,
        "batch_size": _integer(request, "batch_size", 1, loaded.max_batch),
        "max_new_tokens": limits,
        "stop_ids": _tokens(_list(request, "stop_ids", []), "'stop_ids'", loaded),
        "sampling": sampling,
        "share_prefill": bool(request.get("share_prefill", False)),
        "prefill_cache": request.get("prefill_cache"),
        "trace": trace,
        "trace_path": trace_path,
    }


def validate_method(
    method: Mapping[str, Any], capabilities: Mapping[str, Any], loaded: Loaded
) -> Method:
    """A method whose every part this worker serves and has loaded."""
    kv_precision = method.get("kv_precision", "kv16")
    if kv_precision != "kv16":
        raise RequestError("unsupported", f"KV precision {kv_precision!r}; only 'kv16' is served.")
    drafter = dict(_object(method, "drafter", {"kind": "none"}))
    shape = dict(_object(method, "shape", {"kind": "none"}))
    acceptance = dict(_object(method, "acceptance", {"kind": "greedy"}))
    _name(drafter.get("kind"), "drafter", DRAFTERS, capabilities["drafters"])
    _name(shape.get("kind"), "shape", SHAPES, capabilities["shapes"])
    _name(acceptance.get("kind"), "acceptance", ACCEPTANCE, capabilities["acceptance"])
    if (drafter["kind"] == "none") != (shape["kind"] == "none"):
        raise _bad("a drafter needs a shape, and a shape needs a drafter.")
    if shape["kind"] == "chain":
        _integer(shape, "gamma", 1, MAX_DRAFTED)
    elif shape["kind"] == "tree":
        depth = _integer(shape, "depth", 1, MAX_DRAFTED)
        _integer(shape, "top_k", 1, MAX_DRAFTED)
        _integer(shape, "nodes", depth, MAX_DRAFTED)
    if drafter["kind"] == "ngram":
        longest = _integer(drafter, "max_ngram", 1, MAX_DRAFTED, 3)
        drafter["max_ngram"] = longest
        drafter["min_ngram"] = _integer(drafter, "min_ngram", 1, longest, 1)
    elif drafter["kind"] == "self":
        _loaded_precision(drafter.get("precision"), loaded)
    elif drafter["kind"] != "none" and drafter.get("id") not in loaded.drafter_ids:
        raise _bad(f"drafter {drafter.get('id')!r} was not loaded. {near('', loaded.drafter_ids)}")
    return {
        "precision": _loaded_precision(method.get("precision"), loaded),
        "kv_precision": kv_precision,
        "drafter": drafter,  # type: ignore[typeddict-item]
        "shape": shape,  # type: ignore[typeddict-item]
        "acceptance": acceptance,  # type: ignore[typeddict-item]
    }


def validate_forward(
    request: Mapping[str, Any], capabilities: Mapping[str, Any], loaded: Loaded
) -> ForwardRequest:
    """The `forward` request with its defaults filled in."""
    model = request.get("model", "target")
    models = ("target", *loaded.drafter_ids)
    if model not in models:
        raise _bad(f"model {model!r} was not loaded. {near(model, models)}")
    tokens = _list(request, "tokens")
    if not tokens or not all(_is_integer(n) and n >= 1 for n in tokens):
        raise _bad("'tokens' needs positive integers.")
    mask = request.get("mask", "chain")
    if mask not in ("chain", "tree"):
        raise _bad(f"mask {mask!r} is unknown. {near(mask, ('chain', 'tree'))}")
    if mask not in capabilities["shapes"] and mask != "chain":
        raise RequestError("unsupported", f"mask {mask!r} is not served.")
    context = _integer(request, "context", 0, loaded.max_context)
    if context + max(tokens) > loaded.max_context:
        raise _bad(
            f"context {context} + {max(tokens)} tokens exceed max_context {loaded.max_context}."
        )
    return {
        "model": model,
        "precision": _loaded_precision(request.get("precision"), loaded),
        "tokens": tokens,
        "mask": mask,
        "context": context,
        "batch": _integer(request, "batch", 1, loaded.max_batch, 1),
        "repeats": _integer(request, "repeats", 1, MAX_REPEATS, 1),
    }


def validate_score(request: Mapping[str, Any], loaded: Loaded) -> ScoreRequest:
    """The `score` request with its defaults filled in."""
    reference = request.get("reference")
    sequences = _sequences(request, "sequences", loaded, shortest=2)
    for index, sequence in enumerate(sequences):
        if len(sequence) > loaded.max_context:
            raise _bad(
                f"sequence {index} has {len(sequence)} tokens; max_context is {loaded.max_context}."
            )
    return {
        "sequences": sequences,
        "precision": _loaded_precision(request.get("precision"), loaded),
        "reference": None if reference is None else _loaded_precision(reference, loaded),
    }


def _bad(message: str) -> RequestError:
    return RequestError("bad_request", message)


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _name(value: object, what: str, known: Iterable[str], served: Iterable[str]) -> str:
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise _bad(f"{what} {value!r} is unknown. {near(value, names)}")
    if value not in served:
        raise RequestError(
            "unsupported",
            f"{what} {value!r} is not served; served: {', '.join(served)}.",
        )
    return value


def _loaded_precision(value: object, loaded: Loaded) -> str:
    name = _name(value, "precision", PRECISIONS, PRECISIONS)
    if name not in loaded.precisions:
        raise _bad(f"precision {name!r} was not loaded. {near(name, loaded.precisions)}")
    return name


def _drafted(method: Method) -> int:
    shape = method["shape"]
    if shape["kind"] == "chain":
        return shape["gamma"]
    return shape["nodes"] if shape["kind"] == "tree" else 0


def _object(request: Mapping[str, Any], key: str, default: Any = _ABSENT) -> Mapping[str, Any]:
    value = request.get(key, default)
    if not isinstance(value, dict):
        raise _bad(f"{key!r} is {'missing' if value is _ABSENT else 'not an object'}.")
    return value


def _list(request: Mapping[str, Any], key: str, default: Any = _ABSENT) -> list[Any]:
    value = request.get(key, default)
    if not isinstance(value, list):
        raise _bad(f"{key!r} is {'missing' if value is _ABSENT else 'not a list'}.")
    return value


def _integer(
    request: Mapping[str, Any], key: str, low: int, high: int, default: Any = _ABSENT
) -> int:
    value = request.get(key, default)
    if not _is_integer(value) or not low <= value <= high:
        shown = "missing" if value is _ABSENT else repr(value)
        raise _bad(f"{key!r} is {shown}; it must be an integer from {low} to {high}.")
    return int(value)


def _sequences(
    request: Mapping[str, Any], key: str, loaded: Loaded, shortest: int
) -> list[list[int]]:
    sequences = _list(request, key)
    for index, sequence in enumerate(sequences):
        if not isinstance(sequence, list) or len(sequence) < shortest:
            raise _bad(f"'{key}[{index}]' is not a list of {shortest} or more token ids.")
        _tokens(sequence, f"'{key}[{index}]'", loaded)
    return sequences


def _tokens(tokens: list[Any], where: str, loaded: Loaded) -> list[int]:
    for token in tokens:
        if not _is_integer(token) or not 0 <= token < loaded.vocab_size:
            raise _bad(f"{where} holds {token!r}, which is no token id below {loaded.vocab_size}.")
    return tokens
