"""Fits a workload to traffic: from logged requests, or from a trace of lengths without text."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import yaml

from harness.workload.assumed_text import AssumedText
from harness.workload.context import read_passages
from harness.workload.errors import WorkloadError
from harness.workload.prompt import Prompt, Request, Tokenizer, as_dicts
from harness.workload.request_file import read_requests
from harness.workload.settings import CONF_FOLDER, Settings
from harness.workload.tokenization import tokenize
from harness.workload.trace_csv import TraceRow, read_trace
from harness.workload.traffic import Traffic, describe

DEMO = CONF_FOLDER / "workload" / "data"
DEFAULT_OUTPUT = 64
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class Options:
    """What to keep: at most ``requests`` (0 for all) of at most ``max_tokens``, output included."""

    name: str
    requests: int
    max_tokens: int
    seed: int


@dataclass(frozen=True)
class Fit:
    """A fitted workload: lines for its file, and what was found in the traffic.

    ``kept`` describes the lines. ``too_long`` requests were left out.
    """

    lines: list[dict[str, Any]]
    found: Traffic
    kept: Traffic
    text_assumed: bool
    too_long: int


def fit(
    paths: Sequence[Path], options: Options, tokenizer: Tokenizer, model_info: Mapping[str, Any]
) -> Fit:
    """Fits a workload to files of one kind: traces (.csv) or requests (anything else).

    Raises:
        WorkloadError: mixed kinds, a problem in a file, or no request that is short enough.
    """
    traces = [path for path in paths if path.suffix.lower() == ".csv"]
    if traces and len(traces) < len(paths):
        raise WorkloadError("Give either traces (.csv) or files of requests, not both at once.")
    if traces:
        rows = sorted((row for path in traces for row in read_trace(path)), key=lambda r: r.time_s)
        return _fit_trace(rows, options, tokenizer)
    return _fit_requests(paths, options, tokenizer, model_info)


def _fit_trace(rows: Sequence[TraceRow], options: Options, tokenizer: Tokenizer) -> Fit:
    times = [row.time_s for row in rows]
    found = describe([r.prompt_tokens for r in rows], [r.output_tokens for r in rows], times)
    short = [r for r in rows if r.prompt_tokens + r.output_tokens <= options.max_tokens]
    _check_some_left(len(short), options)
    chosen = [short[i] for i in _sample([r.prompt_tokens for r in short], options)]
    arrivals = _arrivals(times, len(chosen), len(chosen) == len(rows), options.seed)
    demo = read_requests(DEMO / "prod.jsonl", "prod.jsonl")
    writer = AssumedText(
        tokenizer,
        read_passages(DEMO / "pool.jsonl", "pool.jsonl"),
        [(r.category, r.messages[-1].content) for r in demo if r.messages],
        options.seed,
    )
    lines: list[dict[str, Any]] = []
    lengths: list[int] = []
    outputs: list[int] = []
    for number, (row, arrival) in enumerate(zip(chosen, arrivals, strict=True), start=1):
        category, text, length = writer.write(row.prompt_tokens)
        lengths.append(length)
        # A text may be a little longer than its row says where that is a few tokens alone.
        outputs.append(max(1, min(row.output_tokens, options.max_tokens - length)))
        lines.append(
            {
                "id": f"{options.name}-{number:05d}",
                "category": category,
                "messages": [{"role": "user", "content": text}],
                "max_new_tokens": outputs[-1],
                "arrival_s": arrival,
                "text_assumed": True,
            }
        )
    kept = describe(lengths, outputs, arrivals)
    return Fit(lines, found, kept, text_assumed=True, too_long=len(rows) - len(short))


def _fit_requests(
    paths: Sequence[Path], options: Options, tokenizer: Tokenizer, model_info: Mapping[str, Any]
) -> Fit:
    pairs: list[tuple[Request, Prompt]] = []
    for path in paths:
        requests = read_requests(path, str(path))
        settings = Settings(name=options.name, path=str(path), max_new_tokens=DEFAULT_OUTPUT)
        if len(paths) > 1:  # ids need only be unique within a file
            requests = [replace(request, id=f"{path.stem}-{request.id}") for request in requests]
        # A request that is too long for the model is left out and counted below, not refused.
        info = {**model_info, "max_position": _UNLIMITED}
        pairs += zip(requests, tokenize(requests, settings, tokenizer, info), strict=True)
    ids = [request.id for request, _ in pairs]
    if len(set(ids)) < len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise WorkloadError(f"Two of the files lead to the same id {twice!r}. Rename one file.")
    times = [r.arrival_s for r, _ in pairs if r.arrival_s is not None]
    timed = len(times) == len(pairs)
    found = _describe_requests(pairs, times if timed else None)
    short = [p for p in pairs if _total(p[1]) <= options.max_tokens]
    _check_some_left(len(short), options)
    chosen = [short[i] for i in _sample([len(p.token_ids) for _, p in short], options)]
    new_times: list[float] | None = None
    if timed:
        chosen.sort(key=lambda pair: pair[0].arrival_s or 0.0)
        new_times = _arrivals(times, len(chosen), len(chosen) == len(pairs), options.seed)
        chosen = [(replace(r, arrival_s=t), p)
                  for (r, p), t in zip(chosen, new_times, strict=True)]  # fmt: skip
    return Fit(
        lines=[_line(request) for request, _ in chosen],
        found=found,
        kept=_describe_requests(chosen, new_times),
        text_assumed=any(request.text_assumed for request, _ in chosen),
        too_long=len(pairs) - len(short),
    )


def write(result: Fit, options: Options, sources: Sequence[Path], folder: Path) -> list[Path]:
    """Writes ``requests.jsonl`` and ``workload/NAME.yaml`` into a new folder.

    Raises:
        WorkloadError: the folder exists already, or cannot be written.
    """
    requests, config = folder / "requests.jsonl", folder / "workload" / f"{options.name}.yaml"
    settings = {
        "defaults": ["prod", "_self_"],
        "name": options.name,
        "path": str(requests),
        "text_assumed": result.text_assumed or "auto",
        "fitted": {
            "sources": [path.name for path in sources],
            "seed": options.seed,
            "too_long": result.too_long,
            "found": result.found.as_dict(),
            "kept": result.kept.as_dict(),
        },
    }
    head = "# Written by `python -m harness.workload fit`. `found` describes the traffic, `kept`\n"
    head += "# the requests that stand for it.\n"
    if result.text_assumed:
        head += (
            "# The text is assumed: the trace has lengths alone. Acceptance depends on text, so\n"
        )
        head += "# what speculation gains here is an assumption too, and no verdict is `adopt`.\n"
    try:
        folder.mkdir(parents=True)
        config.parent.mkdir()
        rows = (json.dumps(line, ensure_ascii=False) + "\n" for line in result.lines)
        requests.write_text("".join(rows), encoding="utf-8")
        config.write_text(head + yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    except FileExistsError:
        raise WorkloadError(
            f"The folder {folder} exists already. Give another --name, or remove it first."
        ) from None
    except OSError as error:
        raise WorkloadError(f"The folder {folder} cannot be written: {error.strerror}.") from None
    return [requests, config]


def _sample(lengths: Sequence[int], options: Options) -> list[int]:
    """Indices of a sample in their old order: evenly spaced by length, so quantiles are kept."""
    count = min(options.requests or len(lengths), len(lengths))
    order = list(range(len(lengths)))
    random.Random(options.seed).shuffle(order)  # equal lengths in no order of time
    order.sort(key=lambda index: lengths[index])
    return sorted(order[(2 * k + 1) * len(order) // (2 * count)] for k in range(count))


def _arrivals(times: Sequence[float], count: int, complete: bool, seed: int) -> list[float]:
    """Arrival times from 0 on: the traffic's own, or for a sample gaps drawn from its gaps.

    A sample of requests keeps the rate and the distribution of gaps of the whole, not their order.
    """
    ordered = sorted(times)
    if complete:
        return [round(time - ordered[0], 6) for time in ordered]
    gaps = [later - earlier for earlier, later in pairwise(ordered)]
    drawn = random.Random(seed).choices(gaps, k=count - 1)
    return [round(time, 6) for time in accumulate(drawn, initial=0.0)]


def _describe_requests(
    pairs: Sequence[tuple[Request, Prompt]], times: Sequence[float] | None
) -> Traffic:
    known = [r.max_new_tokens for r, _ in pairs if r.max_new_tokens is not None]
    outputs = known if len(known) == len(pairs) else None
    return describe([len(p.token_ids) for _, p in pairs], outputs, times)


def _line(request: Request) -> dict[str, Any]:
    line: dict[str, Any] = {"id": request.id, "category": request.category}
    if request.text is not None:
        line["prompt"] = request.text
    if request.messages is not None:
        line["messages"] = as_dicts(request.messages)
    if request.token_ids is not None:
        line["token_ids"] = list(request.token_ids)
    for key in ("language", "max_new_tokens", "arrival_s"):
        if getattr(request, key) is not None:
            line[key] = getattr(request, key)
    if request.text_assumed:
        line["text_assumed"] = True
    return line


def _total(prompt: Prompt) -> int:
    return len(prompt.token_ids) + prompt.max_new_tokens


def _check_some_left(count: int, options: Options) -> None:
    if not count:
        raise WorkloadError(
            f"All requests are longer than {options.max_tokens} tokens with their output. "
            "Give a larger --max-tokens, or a --model with a longer context."
        )
