"""`python -m harness.records`: work on results folders.

    python -m harness.records merge OUT IN...

`merge` joins results folders of one configuration, for example of hosts that measured one group
each, into the new folder OUT, and writes its summary.json and report.html.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from harness import analysis
from harness.errors import ConfigError
from harness.results import PARTIAL, ResultsFolder
from reports import build as report
from reports.source import ReportError

DESCRIBING = ("config.yaml", "environment.json", "plan.json", "curves.json")


def merge(out: Path, sources: Sequence[Path]) -> int:
    """Copy the finished blocks of `sources` into `out`; return how many blocks it holds.

    Raises ConfigError where the folders cannot be mixed, or two hold different records of one
    block; `out` is then not made.
    """
    folders = [ResultsFolder(source) for source in sources]
    plans = [_plan(folder) for folder in folders]
    for source, plan in zip(sources, plans, strict=True):
        if plan["fingerprint"] != plans[0]["fingerprint"]:
            raise ConfigError(
                f"{source} and {sources[0]} cannot be merged: they were measured with another "
                "model, workload, worker, device, or other methods or settings."
            )
    if out.exists():
        raise ConfigError(f"{out} exists already; name a new folder for the merged results.")
    blocks = _blocks(folders)
    out.mkdir(parents=True)
    for name in DESCRIBING:
        if (sources[0] / name).exists():
            shutil.copy2(sources[0] / name, out / name)
    for (group, block), folder in sorted(blocks.items()):
        shutil.copytree(folder, out / "records" / group / block)
    return len(blocks)


def _plan(folder: ResultsFolder) -> dict[str, Any]:
    plan = folder.plan()
    if plan is None:
        raise ConfigError(f"{folder.path} is no results folder: it has no plan.json.")
    return plan


def _blocks(folders: Sequence[ResultsFolder]) -> dict[tuple[str, str], Path]:
    """Folder of each finished block; the same block may stand in two sources if it is equal."""
    found: dict[tuple[str, str], Path] = {}
    for folder in folders:
        for block in sorted(folder.records.glob("*/*")):
            if block.name.endswith(PARTIAL) or not block.is_dir():
                continue
            key = (block.parent.name, block.name)
            earlier = found.setdefault(key, block)
            if _contents(earlier) != _contents(block):
                raise ConfigError(
                    f"{earlier} and {block} are two measurements of one block; they use the same "
                    "prompts, so they do not count as two. Remove one of them."
                )
    return found


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.json"))}


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; the exit status is 2 where the folders cannot be merged."""
    parser = argparse.ArgumentParser(
        prog="python -m harness.records", description="Work on results folders."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    merging = commands.add_parser(
        "merge",
        help="join results folders of one configuration",
        description="Join the finished blocks of results folders that were measured with one "
        "configuration (equal fingerprint in plan.json) into a new folder, and write its "
        "summary.json and report.html.",
    )
    merging.add_argument("out", type=Path, metavar="OUT", help="new folder")
    merging.add_argument("sources", type=Path, nargs="+", metavar="IN", help="results folders")
    given = parser.parse_args(argv)
    try:
        count = merge(given.out, given.sources)
        analysis.analyse(given.out)
        config = yaml.safe_load((given.out / "config.yaml").read_text(encoding="utf-8"))
        page = report.build(given.out, config["report"]["lang"])
    except (ConfigError, ReportError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    print(f"{given.out} holds {count} blocks. Report: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
