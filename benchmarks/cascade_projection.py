"""How many tokens a round of a cascade must bring, projected from measured times.

python -m benchmarks.cascade_projection RESULTS --out FOLDER

Reads the `hierarchy` of a summary and writes, for each cascade, FOLDER/cascade-PRECISION.json and a
figure of it. Time per token = seconds of a round / τ (the cost model of SpecMQuant, arXiv
2505.22179), with τ the acceptance length of the outer chain. A round costs what the forwards took
that it consists of, timed alone, with as many rounds inside it as were counted; plain decoding and
the tree stay as they were. So everything but the crosses is a projection, none of it measured.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures_file import write_figures
from harness.errors import ConfigError
from reports.figures.lines import Chart, Line, Mark, draw_lines
from reports.figures.svg import finish, style
from reports.language import Language
from reports.source import Interval

_OVER = {"over_plain": "plain decoding", "over_tree": "the head's tree"}
_STEP = 0.25


def project(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    """The projection of an entry of `hierarchy`; None where its curves are missing.

    Times are seconds: `plain_s` of a token of plain decoding, `tree_s` of a token of the tree,
    `round_s` of a round of the cascade. `reached_at` is the smallest acceptance length at which the
    study's ratio is reached, None where it is more than `most`, the most that a round can commit.
    """
    model = entry.get("model")
    if model is None:
        return None
    round_s = float(model["draft_s"]) + float(model["verify_s"])
    seconds = {"over_plain": model["plain_s"], "over_tree": model["tree_s"]}
    most = int(model["most"])
    lengths = [1.0 + _STEP * step for step in range(int((most - 1) / _STEP) + 1)]
    ratios: dict[str, Any] = {}
    for key, other_s in seconds.items():
        if other_s is None:
            continue
        needed = float(entry["study"][key]) * round_s / float(other_s)
        ratios[key] = {
            "study": entry["study"][key],
            "reached_at": needed if needed <= most else None,
            "needed": needed,
            "points": [[tau, tau * float(other_s) / round_s] for tau in lengths],
            "measured": entry[key],
        }
    return {
        "projection": True,
        "precision": entry["precision"],
        "cascade": entry["cascade"],
        "tree": entry["tree"],
        "replayed": entry["replayed"],
        "plain_s": model["plain_s"],
        "tree_s": model["tree_s"],
        "draft_s": model["draft_s"],
        "verify_s": model["verify_s"],
        "round_s": round_s,
        "most": most,
        "acceptance_length": entry["acceptance_length"],
        "inner_acceptance_length": entry["inner_acceptance_length"],
        "ratios": ratios,
    }


def draw(found: Mapping[str, Any]) -> str:
    """The figure of a projection, as the text of an SVG file."""
    t = Language("en")
    lines, levels, marks = [], [], []
    for key, ratio in found["ratios"].items():
        points = [(x, Interval(y, None, None)) for x, y in ratio["points"]]
        lines.append(Line(f"over {_OVER[key]} (projection)", points, markers=False))
        levels.append((float(ratio["study"]), f"{ratio['study']}: the study, over {_OVER[key]}"))
        measured = ratio["measured"]
        if measured is not None:
            mean = float(measured["mean"])
            how = "measured, replayed" if found["replayed"] else "measured"
            label = f"{how}: {mean:.2f} over {_OVER[key]}"
            marks.append(Mark(label, float(found["acceptance_length"]["mean"]), mean))
    chart = Chart(
        lines, "acceptance length of the outer chain (tokens a round)", "speed of the cascade",
        levels=levels, marks=marks,
    )  # fmt: skip
    title = f"Projected from measured times: a cascade under {found['precision']}"
    with style():
        figure, _ = draw_lines(chart, t)
        svg = str(finish(figure, f"cascade-{found['precision']}", title, _caption(found)))
    # A report brings namespace, font and paper for its figures; a file has its own.
    own = 'xmlns="http://www.w3.org/2000/svg" style="background:#fff;font-family:sans-serif"'
    return svg.replace("<svg ", f"<svg {own} ", 1)


def _caption(found: Mapping[str, Any]) -> str:
    parts = []
    for key, ratio in found["ratios"].items():
        at = f"at {ratio['needed']:.2f} tokens a round"
        if ratio["reached_at"] is None:
            at += f", more than a round can bring ({found['most']})"
        parts.append(f"{ratio['study']} over {_OVER[key]} {at}")
    return "Projection: " + "; ".join(parts) + "."


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the projections of a results folder. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cascade_projection", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("results", type=Path, help="folder of a sweep with a cascade")
    parser.add_argument("--out", type=Path, required=True, help="folder for data and figures")
    options = parser.parse_args(arguments)
    try:
        found = _read(options.results)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    for projection in found:
        path = options.out / f"cascade-{projection['precision']}.json"
        write_figures(path, projection)
        path.with_suffix(".svg").write_text(draw(projection) + "\n", encoding="utf-8")
        print(f"{path}: {_caption(projection)}")
    return 0


def _read(results: Path) -> list[dict[str, Any]]:
    path = results / "summary.json"
    try:
        summary = json.loads(path.read_text(encoding="utf-8"))
        found = [project(entry) for entry in summary["hierarchy"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path} is no summary of a sweep: {error!r}.") from error
    known = [projection for projection in found if projection is not None]
    if not known:
        raise ConfigError(
            f"{path} has no cascade with forward curves: run +experiment=hierarchical_gpu, or "
            "another sweep with a cascade."
        )
    return known


if __name__ == "__main__":
    sys.exit(main())
