"""Forward curves: settings, figures of a curve, the closing table and the report's section."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness import closing_curves, curve_settings
from harness.curve_figures import curve_row, curve_rows, median_interval
from harness.errors import ConfigError
from reports.curves import COLUMNS, heading, read_places
from reports.figures.curves import curve_figure
from reports.language import LANGUAGES, Language

AUTO = {"tokens": "auto", "contexts": "auto", "repeats": 5, "show": False}


def curve(**other: Any) -> dict[str, Any]:
    """A curve of curves.json whose forwards take 10 and 15 ms, the second repeat twice as long."""
    return {
        "worker": "native", "model": "target", "precision": "w4a8", "mask": "chain",
        "context": 128, "batch": 1, "bandwidth_bytes_s": 20e9, "bytes_per_token": 100_000_000,
        "times": {"1": [0.010, 0.020, 0.010], "4": [0.015, 0.030, 0.015]}, **other,
    }  # fmt: skip


def test_automatic_settings_and_lists() -> None:
    found = curve_settings.read(AUTO)
    assert (found.tokens, found.contexts) == (None, None)
    assert found.as_json() == {"tokens": "auto", "contexts": "auto", "repeats": 5}
    found = curve_settings.read({**AUTO, "tokens": [4, 1, 4], "contexts": [0]})
    assert (found.tokens, found.contexts) == ((1, 4), (0,))


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ({"tokens": []}, "curves.tokens"),
        ({"tokens": [1, 65]}, "curves.tokens"),
        ({"tokens": [2, 4]}, "curves.tokens"),
        ({"tokens": "all"}, "curves.tokens"),
        ({"contexts": [-1]}, "curves.contexts"),
        ({"contexts": 128}, "curves.contexts"),
        ({"repeats": 0}, "curves.repeats"),
        ({"repeats": True}, "curves.repeats"),
        ({"show": 1}, "curves.show"),
        ({"token": [1]}, "curves"),
    ],
)
def test_bad_settings_are_named(bad: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        curve_settings.read({**AUTO, **bad})


def test_a_ratio_is_formed_inside_a_repeat() -> None:
    """A repeat that is slow as a whole changes no ratio, though it changes the times."""
    one, four = curve_row(curve(), 0.95)["points"]
    assert (one["tokens"], four["tokens"]) == (1, 4)
    assert four["seconds"]["mean"] == 0.015
    assert four["seconds"]["ci_high"] == 0.030
    assert four["ratio"]["ci_low"] == pytest.approx(1.5)
    assert four["ratio"]["ci_high"] == pytest.approx(1.5)
    assert one["bytes_s"]["mean"] == pytest.approx(10e9)
    assert one["bytes_s"]["ci_low"] == pytest.approx(5e9)
    assert one["roofline_fraction"]["mean"] == pytest.approx(0.5)


def test_without_bandwidth_or_a_single_row_there_is_no_figure_for_them() -> None:
    (point,) = curve_row(curve(bandwidth_bytes_s=None, times={"4": [0.01]}), 0.95)["points"]
    assert point["roofline_fraction"] is None
    assert point["ratio"] is None


def test_few_repeats_say_what_level_they_reach() -> None:
    assert median_interval([3.0], 0.95)["level"] == 0
    five = median_interval([5, 1, 4, 2, 3], 0.95)
    assert (five["mean"], five["ci_low"], five["ci_high"]) == (3, 1, 5)
    assert five["level"] == pytest.approx(0.9375)


def test_intervals_of_medians_cover_as_often_as_they_say() -> None:
    draw = random.Random(1)
    covered = 0
    for _ in range(2000):
        found = median_interval([draw.expovariate(1) for _ in range(20)], 0.95)
        covered += found["ci_low"] <= 0.6931 <= found["ci_high"]
    assert found["level"] == pytest.approx(0.9586, abs=1e-3)
    assert covered / 2000 == pytest.approx(found["level"], abs=0.015)


def test_a_bad_curves_file_is_named(tmp_path: Path) -> None:
    assert curve_rows(tmp_path, 0.95) == []
    path = tmp_path / "curves.json"
    path.write_text(json.dumps({"schema_version": 1, "curves": [{}]}), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"curves\.json"):
        curve_rows(tmp_path, 0.95)


def test_the_closing_table_has_a_row_for_each_number_of_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [curve_row(curve(context=context), 0.95) for context in (128, 1024)]
    closing_curves.show({"curves": rows}, Console(width=140, highlight=False))
    printed = capsys.readouterr().out
    assert "batch 1, 128 tokens" in printed
    assert "batch 1, 1024 tokens" in printed
    assert printed.count("15.00 [15.00, 30.00]") == 2
    assert printed.count("1.50 [1.50, 1.50]") == 2


@pytest.mark.parametrize("code", LANGUAGES)
def test_the_report_shows_every_curve(code: str) -> None:
    t = Language(code)
    entries = [curve_row(curve(precision=p), 0.95) for p in ("w4a8", "fp16")]
    (place,) = read_places([*entries, {}, "no curve", {**entries[0], "points": []}], t)
    assert [c.label for c in place.curves] == ["native w4a8", "native fp16"]
    assert len(heading(t)) == len(COLUMNS)
    assert [[cell.main for cell in row[1:4]] for row in place.rows[:2]] == [
        ["1", "10.00", "1.00"],
        ["4", "15.00", "1.50"],
    ]
    picture = curve_figure(place.curves, "curves", t)
    assert picture is not None
    assert "1.50" in picture.caption
    assert "native fp16" in picture.svg
    single = read_places([curve_row(curve(times={"1": [0.01]}), 0.95)], t)
    assert curve_figure(single[0].curves, "curves", t) is None
