"""The report of a real analysis: every key that it reads is one that the analysis writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from reports.build import build
from tests.fakes.records import FakeWorld, write_results
from tests.unit.report_page import Page


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = write_results(tmp_path_factory.mktemp("prod"), FakeWorld(failed=("w4a4",)))
    return folder, analyse(folder)


def test_nothing_falls_back_to_english_in_japanese(analysed: tuple[Path, dict[str, Any]]) -> None:
    page = Page(build(analysed[0], "ja").read_text("utf-8"))
    assert [e.text for e in page.all("span", "english")] == []


def test_all_figures_are_drawn_and_all_sections_filled(
    analysed: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = analysed
    page = Page(build(folder).read_text("utf-8"))
    drawn = {e.attributes["id"].split("-")[0] for e in page.all("title") if "id" in e.attributes}
    assert drawn == {"speedup", "interaction", "acceptance", "phases", "tradeoff", "cost"}
    assert "so there is no figure" not in page.text
    assert "The summary holds no" not in page.text
    assert "Not computed" not in page.one("dl", "facts").text
    for group in summary["groups"]:
        assert f"{group['name']}: the same baseline, run twice" in page.text
        assert f"{group['name']}: the speedup intervals reach" in page.text


def test_figures_of_the_tables_are_those_of_the_summary(
    analysed: tuple[Path, dict[str, Any]],
) -> None:
    folder, summary = analysed
    page = Page(build(folder).read_text("utf-8"))
    tables = page.all("table", "decided")
    groups = len(summary["groups"])
    for group, table in zip(summary["groups"], tables[:groups], strict=True):
        for arm in (a for a in summary["arms"] if a["group"] == group["name"]):
            found = arm["speedup"]
            assert f"{found['mean']:.2f}×" in table.text
            assert f"{found['ci_low']:.2f}–{found['ci_high']:.2f}" in table.text
    for group, table in zip(summary["groups"], tables[groups:], strict=True):
        for m in summary["methods"]:
            if m["group"] == group["name"] and m["status"] == "ok" and m["role"] == "method":
                assert f"{m['speedup']['mean']:.2f}×" in table.text
                assert f"{m['speedup']['ci_low']:.2f}–{m['speedup']['ci_high']:.2f}" in table.text


def test_failed_cells_are_listed_and_counted(analysed: tuple[Path, dict[str, Any]]) -> None:
    page = Page(build(analysed[0]).read_text("utf-8"))
    assert "3 cells failed" in page.text  # one method in three groups
    assert "died of SIGSEGV" in page.text
