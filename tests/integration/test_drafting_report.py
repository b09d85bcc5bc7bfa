"""From a sweep with trees, a cascade and `auto` to the sentences and figures of the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.analysis import analyse
from harness.command import OK
from harness.sweep import main
from reports.build import build
from tests.integration.folder import SweepFolder
from tests.integration.test_drafters import Drafters
from tests.unit.report_page import Page

SHAPES = """[chain,{kind: tree,depth: 1,top_k: 1,nodes: 1},{kind: tree,depth: 4,top_k: 4,nodes: 15},
{kind: tree,depth: 6,top_k: 10,nodes: 60},auto]"""
METHODS = f"""[{{precision: fp16}},{{precision: w4a16}},
{{precision: fp16,drafter: {{kind: head,id: head,precision: fp16}},shape: {SHAPES}}},
{{precision: w4a16,drafter: {{kind: head,id: head,precision: fp16}},shape: {SHAPES}}},
{{precision: w4a16,drafter: {{kind: cascade,id: small,precision: w4a8,
inner: {{kind: head,id: own,precision: fp16}},
inner_shape: {{kind: tree,depth: 2,top_k: 2,nodes: 4}}}},
shape: {{kind: chain,gamma: 4}}}}]"""


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = SweepFolder(tmp_path_factory.mktemp("drafting"))
    words = Drafters(folder).words[:-1]
    methods = f"methods={METHODS}".replace("\n", "")
    precision = "sweep.precision=[fp16,w4a16]"
    assert main(folder.overrides(*words, methods, precision, "workload.max_new_tokens=40")) == OK
    text = (folder.results / "summary.json").read_text(encoding="utf-8")
    return folder.results, json.loads(text)


def keys(entry: dict[str, Any]) -> list[str]:
    return [finding["key"] for finding in entry["findings"]]


def test_a_tree_stops_paying_where_verification_outgrows_what_it_yields(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    """A further row adds 6 % of a step under fp16 and 18 % under w4a16 in the scripted worker."""
    wide, narrow = swept[1]["trees"]
    assert (wide["precision"], narrow["precision"]) == ("fp16", "w4a16")
    assert [point["nodes"] for point in wide["points"]] == [3, 1, 15, 60]
    for entry, share in ((wide, 0.06), (narrow, 0.18)):
        for point in entry["points"]:
            wanted = pytest.approx(1 + share * point["nodes"], rel=1e-6)
            assert point["verify_ratio"]["mean"] == wanted
            assert point["round_ratio"]["mean"] == pytest.approx(wanted.expected, rel=0.05)
            phases = [phase["mean"] for phase in point["phases_ms"].values()]
            rounds = [phase["mean"] for phase in point["round_ms"].values()]
            tau = point["acceptance_length"]["mean"]
            assert sum(rounds) == pytest.approx(sum(phases) * tau, rel=1e-6)
        stops = next(f for f in entry["findings"] if f["key"] == "tree_stops")
        assert stops["params"]["more"] == 60
        assert stops["params"]["verify_share"] > 0.8
    assert "tree_effect_shown" in keys(narrow)
    assert "tree_effect_shown" not in keys(wide)
    (ratio,) = (f["params"] for f in narrow["findings"] if f["key"] == "tree_ratio")
    assert (ratio["study"], ratio["ratio"]) == (1.8, pytest.approx(11.8))


def test_the_cost_formula_is_near_what_was_measured_and_says_what_is_needed(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    (entry,) = swept[1]["hierarchy"]
    model = entry["model"]
    for name in ("over_plain", "over_tree"):
        assert model["predicted"][name] == pytest.approx(entry[name]["mean"], rel=0.1)
        # Ratios grow in proportion to the acceptance length.
        slope = model["predicted"][name] / model["acceptance_length"]
        assert model["reached_at"][name] * slope == pytest.approx(entry["study"][name])
    assert model["most"] == 4 + 2 + 1
    assert "cascade_out_of_reach" in keys(entry)


def test_chosen_shapes_stand_beside_the_best_fixed_one(
    swept: tuple[Path, dict[str, Any]],
) -> None:
    entries = swept[1]["auto"]
    assert len(entries) == 2
    for entry in entries:
        assert (entry["predicted_speedup"], entry["switches"]) == (1.25, 1)
        assert entry["best_fixed"].split("+")[1].startswith("head-head-fp16-")
        assert entry["over_best"]["ci_low"] <= entry["over_best"]["mean"]


def test_a_single_block_has_figures_and_no_sentences(
    swept: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "one"
    shutil.copytree(swept[0], folder)
    for block in folder.glob("records/*/00[1-9]"):
        shutil.rmtree(block)
    summary = analyse(folder)
    assert [entry["findings"] for entry in summary["trees"] + summary["hierarchy"]] == [[]] * 3
    assert [entry["finding"] for entry in summary["auto"]] == [None, None]
    assert build(folder).stat().st_size > 0


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_the_report_has_the_sections_in_both_languages(
    swept: tuple[Path, dict[str, Any]], lang: str, tmp_path: Path
) -> None:
    page = Page(build(swept[0], lang, tmp_path / "r.html").read_text("utf-8"))
    assert [e.text for e in page.all("span", "english")] == []
    drawn = {e.attributes["id"].split("-")[0] for e in page.all("title") if "id" in e.attributes}
    assert {"tree", "cascade"} <= drawn
    links = {e.attributes.get("href") for e in page.all("a")}
    assert {"#trees", "#hierarchy", "#categories"} <= links
    assert "11.80" in page.text
    assert "2.78" in page.text
