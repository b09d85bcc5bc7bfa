"""Command line: `python -m harness.workload fit FILE... --name mine`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from harness import model_file
from harness.errors import ConfigError
from harness.tokenizer import Tokenizer
from harness.workload.fit import Fit, Options, fit, write
from harness.workload.settings import NAME
from harness.workload.traffic import Traffic

DESCRIPTION = """\
Fits a workload to your traffic. FILE is either a JSON-lines file of requests (docs/workloads.md),
or a trace without text: a .csv file with the columns TIMESTAMP, ContextTokens and GeneratedTokens.
Several files of one kind are taken together.

Writes OUT/NAME/requests.jsonl (the requests) and OUT/NAME/workload/NAME.yaml (settings, and what
was found: lengths, arrival rate, burstiness), and prints a summary.

A trace without text gives lengths and arrivals alone. Its text is then assumed: the project's own
prompts and prose, cut to the trace's lengths. How many drafted tokens are accepted depends on the
text, so a benchmark on it can say `pilot` at best.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status (2 for bad input)."""
    options = _parser().parse_args(arguments)
    folder = Path(options.out) / options.name
    try:
        if not NAME.fullmatch(options.name):
            raise ConfigError(
                f"--name {options.name!r} cannot name a folder. Use letters, digits, dots, dashes "
                "and underscores."
            )
        model = model_file.read(Path(options.model), made_by="make setup")
        limit = min(options.max_tokens or model.max_position, model.max_position)
        wanted = Options(options.name, options.requests, limit, options.seed)
        result = fit(options.files, wanted, Tokenizer(model.metadata), model.metadata)
        files = write(result, wanted, options.files, folder)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print("\n".join(_summary(result, wanted, files)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m harness.workload")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    fitting = commands.add_parser(
        "fit",
        help="make a workload from logged requests or from a trace",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = fitting.add_argument
    add("files", nargs="+", type=Path, metavar="FILE")
    add("--name", required=True, help="name of the workload and of its folder")
    add("--out", default="workloads", help="folder of fitted workloads (default: workloads)")
    add("--requests", type=_count, default=200, help="requests to keep, evenly spaced by prompt "
        "length; 0 keeps all (default: 200)")  # fmt: skip
    add("--max-tokens", type=_count, default=0, help="leave out requests with more tokens, prompt "
        "and output together (default: the model's context)")  # fmt: skip
    add("--model", default="models/smollm2-135m-instruct.sqm", help="packed model whose tokenizer "
        "counts the tokens (default: the demo model)")  # fmt: skip
    add("--seed", type=int, default=0, help="of the sample (default: 0)")
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value


def _summary(result: Fit, options: Options, files: Sequence[Path]) -> list[str]:
    lines = [f"Found {result.found.requests:,} requests:", *_describe(result.found)]
    if result.too_long:
        lines.append(f"  {result.too_long:,} of them have more than {options.max_tokens:,} tokens "
                     "with their output and were left out.")  # fmt: skip
    lines += [f"Kept {result.kept.requests:,}:", *_describe(result.kept)]
    if result.text_assumed:
        lines += [
            "The text is assumed: the trace has lengths alone, so the prompts are the project's",
            "own text, cut to these lengths. Acceptance depends on text: a verdict is `pilot` at",
            "best.",
        ]
    lines += [f"Wrote {files[0]} and {files[1]}.", "Measure it with",
              f"  python -m harness.sweep --config-dir {files[1].parent.parent} "
              f"workload={options.name}"]  # fmt: skip
    return lines


def _describe(traffic: Traffic) -> list[str]:
    lines = [f"  prompt tokens  {_quantiles(traffic.prompt_tokens)}"]
    if traffic.output_tokens:
        lines.append(f"  output tokens  {_quantiles(traffic.output_tokens)}")
    else:
        lines.append("  output tokens  unknown: not all lines have max_new_tokens")
    arrivals = traffic.arrivals
    if arrivals is None:
        return [*lines, "  arrivals       unknown: not all lines have a time"]
    dispersion = arrivals.count_dispersion
    counts = "" if dispersion is None else (
        f", variance/mean of counts in {arrivals.window_s:.3g} s {dispersion:.2f}"
    )  # fmt: skip
    return [
        *lines,
        f"  arrivals       {arrivals.rate_per_s:.3g} a second over {arrivals.duration_s:,.0f} s; "
        f"coefficient of variation of gaps {arrivals.gap_variation:.2f}{counts}",
        f"                 {arrivals.words}",
    ]


def _quantiles(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:,.0f}" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main())
