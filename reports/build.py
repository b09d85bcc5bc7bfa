"""Writes report.html: one file without outside references, readable without scripts.

python -m reports.build RESULTS [--lang en|ja] [--out FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reports import agreement
from reports.html_file import render_page, write_page
from reports.language import LANGUAGES, Language
from reports.methods import mapping
from reports.page import page_context
from reports.source import ReportError, Results, load


def build(results_dir: Path | str, lang: str = "en", out: Path | str | None = None) -> Path:
    """Writes the report of a results folder and returns its path (`report.html` in it by default).

    The file is replaced as a whole. Raises ReportError where the folder holds no summary that this
    version reads, or the file cannot be written.
    """
    folder = Path(results_dir)
    if agreement.is_agreement(folder):
        return agreement.build(folder, lang, out)
    return write_page(render(load(folder), lang), folder, out)


def render(results: Results, lang: str) -> str:
    """The report as text of an HTML file."""
    cost = mapping(results.summary.get("cost")) or mapping(results.config.get("cost"))
    t = Language(lang, str(cost.get("currency") or "USD"))
    return render_page("report.html.j2", page_context(results, t))


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m reports.build",
        description="Write report.html from summary.json, environment.json and config.yaml of a "
        "results folder. The file needs no network and no scripts, and prints.",
    )
    parser.add_argument("results", type=Path, help="results folder, for example results/prod")
    parser.add_argument(
        "--lang", choices=LANGUAGES,
        help="language of the report (default: report.lang in config.yaml, else en)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, help="file to write (default: RESULTS/report.html)")
    chosen = parser.parse_args(arguments)
    try:
        lang = chosen.lang or _configured(chosen.results)
        print(f"Wrote {build(chosen.results, lang, chosen.out)}.")
    except ReportError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _configured(folder: Path) -> str:
    if agreement.is_agreement(folder):
        return agreement.configured_language(folder)
    return str(mapping(load(folder).config.get("report")).get("lang") or "en")


if __name__ == "__main__":
    sys.exit(main())
