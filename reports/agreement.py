"""The page of an agreement run: report.html from agreement.json and the token trace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from reports import agreement_tables as rows_of
from reports.background import flat_pairs
from reports.figures.agreement import heat_figure, scatter_figure
from reports.html_file import render_page, write_page
from reports.language import Language
from reports.source import SCHEMA_VERSION, ReportError, read_json

TABLES = "agreement.json"
_FIGURE_COLUMNS = ["mode", "status", "match", "both_high", "draft_top1_prob", "target_top1_prob"]
SECTIONS = ("table", "scatter", "heat", "further", "position", "margin", "category", "answers",
            "method", "environment")  # fmt: skip


def is_agreement(folder: Path) -> bool:
    """True for the folder of an agreement run (`python -m harness.trace`)."""
    return (folder / TABLES).is_file()


def configured_language(folder: Path) -> str:
    """The language of the run's configuration, English without one."""
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return str(((config or {}).get("report") or {}).get("lang") or "en")


def build(folder: Path, lang: str = "en", out: Path | str | None = None) -> Path:
    """Writes the page and returns its path (`report.html` in the folder by default).

    The file is replaced as a whole. Raises ReportError where tables or trace cannot be read, or the
    file cannot be written.
    """
    return write_page(_render(folder, lang), folder, out)


def _render(folder: Path, lang: str) -> str:
    path = folder / TABLES
    tables = read_json(path)
    if tables.get("schema_version") != SCHEMA_VERSION:
        raise ReportError(
            f"{path} has schema_version {tables.get('schema_version')!r}; this report reads "
            f"version {SCHEMA_VERSION}. Run `python -m harness.trace` again."
        )
    environment_path = folder / "environment.json"
    environment = read_json(environment_path) if environment_path.is_file() else {}
    t = Language(lang)
    context = _context(folder, tables, _trace(folder / str(tables["trace"])), environment, t)
    return render_page("agreement.html.j2", context)


def _trace(path: Path) -> pd.DataFrame:
    try:
        return pd.read_parquet(path, columns=_FIGURE_COLUMNS)
    except (OSError, ValueError) as error:
        raise ReportError(f"The trace {path} cannot be read: {error}.") from error


def _context(
    folder: Path, tables: dict[str, Any], trace: pd.DataFrame, environment: Any, t: Language
) -> dict[str, Any]:
    modes = tables["modes"]
    names = (str(tables["target"]), str(tables["draft"]))
    figures = [
        {
            "name": t(f"agreement.mode.{mode}"),
            "meaning": t(f"agreement.meaning.{mode}", target=names[0], draft=names[1]),
            "scatter": scatter_figure(
                trace[trace["mode"] == mode], tables["threshold"], names, f"scatter-{mode}", t
            ),
            "heat": heat_figure(found["heat"], names, f"heat-{mode}", t),
        }
        for mode, found in modes.items()
    ]
    online = modes.get("online") or {}
    fixed = modes.get("fixed_prefix") or {}
    first = [
        rows_of.first_mismatch(entries, unit, t)
        for entries, unit in (
            (online.get("first_mismatch_in_round"), "round"),
            (fixed.get("first_mismatch_in_answer"), "answer"),
        )
        if entries
    ]
    meta = [
        t("page.workload", value=t("agreement.workload", form=tables["prompt"])),
        t("page.model", value=tables["model"]),
        t("page.device", value=tables["device"]),
        t("page.backend", value=tables["backend"]),
        t("page.date", value=tables["created_at"]),
    ]
    return {
        "t": t,
        "sections": SECTIONS,
        "page": {"name": tables["name"], "folder": folder.name, "meta": meta},
        "facts": [_fact(mode, found, tables, t) for mode, found in modes.items()],
        "figures": figures,
        "study_table": rows_of.beside_the_study(tables, t),
        "further": rows_of.further(tables, t),
        "positions": rows_of.by_draft_position(online["by_draft_position"], t) if online else None,
        "first": first,
        "margin": rows_of.by_margin(modes, tables, t),
        "category": rows_of.by_category(modes, tables, t),
        "accuracy": rows_of.accuracy(tables, t),
        "notes": _notes(tables, t),
        "tables": tables,
        "environment": flat_pairs(environment, t),
    }


def _fact(mode: str, found: dict[str, Any], tables: dict[str, Any], t: Language) -> dict[str, str]:
    """The headline of a mode."""
    rate = found["agreement_rate"]
    return {
        "label": t("agreement.fact", mode=t(f"agreement.mode.{mode}")),
        "value": t.value("percent2", rate["mean"]),
        "interval": t("agreement.fact_interval", rate=rate, level=tables["level"]),
        "counts": t(
            "agreement.fact_counts", n=found["requests"], of=found["positions"],
            agree=found["agreements"],
        ),
    }  # fmt: skip


def _notes(tables: dict[str, Any], t: Language) -> list[str]:
    """What a reader must know before comparing these figures with others."""
    notes = [t("agreement.note_study")]
    notes.append(
        t("agreement.note_cut", cut=tables["answers_cut"], n=tables["requests"],
          tokens=tables["max_new_tokens"])
    )  # fmt: skip
    if tables["left_out"]["count"]:
        notes.append(t("agreement.note_left_out", n=tables["left_out"]["count"]))
    return notes
