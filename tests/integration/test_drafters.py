"""Sweeps with every drafter, shape and acceptance rule, against a scripted worker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import model_file
from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import main
from tests.fakes.model import write_model
from tests.integration.folder import SweepFolder

METHODS = """[{precision: fp16},{precision: w4a8},
{precision: w4a8,drafter: {kind: model,id: small,precision: w4a8}},
{precision: w4a8,drafter: {kind: head,id: head,precision: fp16},
 shape: [{kind: tree,depth: 2,top_k: 3,nodes: 6},auto]},
{precision: w4a8,drafter: {kind: cascade,id: small,precision: w4a8,
 inner: {kind: head,id: own,precision: fp16},inner_shape: {kind: tree,depth: 2,top_k: 2,nodes: 4}},
 shape: {kind: chain,gamma: 4}}]""".replace("\n", "")


class Drafters:
    """Drafter files in a sweep's folder, and the words that name them."""

    def __init__(self, folder: SweepFolder) -> None:
        target = model_file.read(folder.path / "fake.sqm").content_hash
        small = write_model(folder.path / "small.sqm", name="small")
        self.head("head", target, folder.path)
        self.head("own", model_file.read(small).content_hash, folder.path)
        files = {"small": "target", "head": "target", "own": "small"}
        entries = [
            f"++model.drafters.{name}={{path: {folder.path}/{name}.sqm, target: {reads}}}"
            for name, reads in files.items()
        ]
        self.words = (*entries, f"methods={METHODS}")

    @staticmethod
    def head(name: str, content_hash: str, path: Path) -> None:
        target = {"content_hash": content_hash}
        write_model(path / f"{name}.sqm", name=name, architecture="eagle3", target=target)


@pytest.fixture
def drafters(folder: SweepFolder) -> Drafters:
    return Drafters(folder)


def records(folder: SweepFolder, part: str) -> list[dict[str, Any]]:
    return [r for r in folder.records().values() if part in r["cell"]["method_id"]]


def test_workers_load_the_drafters_and_records_keep_levels_and_choices(
    folder: SweepFolder, drafters: Drafters
) -> None:
    assert main(folder.overrides(*drafters.words)) == OK
    load = next(r for r in folder.requests() if r["call"] == "load")
    found = {d["id"]: (d["precisions"], d.get("target")) for d in load["drafters"]}
    assert found == {
        "small": (["w4a8"], None), "head": (["fp16"], "target"), "own": (["fp16"], "small"),
    }  # fmt: skip
    (cascade, *_) = records(folder, "cascade")
    assert sum(cascade["levels"]["committed"]) == sum(cascade["sequence_rounds"]["drafted"])
    (chosen, *_) = records(folder, "auto")
    assert chosen["shape_choice"]["predicted_speedup"] == 1.25
    (plain, *_) = records(folder, "w4a8")
    assert "levels" not in plain
    assert {request["repeats"] for request in plain["requests"]} == {False}
    assert {request["category"] for request in plain["requests"]} <= {"a", "b"}
    plan = json.loads((folder.results / "plan.json").read_text(encoding="utf-8"))
    assert set(plan["identity"]["drafters"]) == {"small", "head", "own"}


def test_curves_are_measured_for_trees_and_for_drafters(
    folder: SweepFolder, drafters: Drafters
) -> None:
    main(folder.overrides(*drafters.words))
    content = json.loads((folder.results / "curves.json").read_text(encoding="utf-8"))
    rows = {
        (c["model"], c["precision"], c["mask"]): sorted(map(int, c["times"]))
        for c in content["curves"]
    }
    # Six nodes, and those of the candidates of `auto`.
    assert rows["target", "w4a8", "tree"] == rows["target", "fp16", "tree"] == [1, 7, 8, 16, 25]
    assert rows["small", "w4a8", "tree"] == [1, 5]
    assert rows["own", "fp16", "tree"] == [1, 2]
    assert rows["head", "fp16", "chain"] == [1]


def test_a_changed_drafter_changes_the_cells_that_use_it_and_no_others(
    folder: SweepFolder, drafters: Drafters
) -> None:
    def hashes() -> dict[str, str]:
        return {r["cell"]["method_id"]: r["cell"]["hash"] for r in folder.records().values()}

    main(folder.overrides(*drafters.words))
    before = hashes()
    write_model(folder.path / "head.sqm", name="other", architecture="eagle3", target={
        "content_hash": model_file.read(folder.path / "fake.sqm").content_hash})  # fmt: skip
    assert main(folder.overrides(*drafters.words)) == OK
    changed = {name for name, value in hashes().items() if before[name] != value}
    assert changed == {name for name in before if "head-head" in name}
    assert len(list(folder.results.parent.glob("t.*"))) == 1


def test_replay_is_marked_and_never_called_lossless(
    folder: SweepFolder, drafters: Drafters
) -> None:
    words = (
        "acceptance={kind: replay,profile: half}",
        "++profiles.half={rate: 0.5,inner: {rate: 0.5},source: assumed}",
    )
    assert main(folder.overrides(*drafters.words, *words)) == OK
    sent = [r["method"] for r in folder.requests() if r["call"] == "run"]
    seeds = {m["acceptance"]["seed"] for m in sent if m["acceptance"]["kind"] == "replay"}
    assert len(seeds) == 6, "each block draws outcomes of its own"
    for record in records(folder, "~replay-half"):
        assert record["losslessness"] is None
        assert record["cell"]["acceptance_settings"]["source"] == "assumed"
    summary = json.loads((folder.results / "summary.json").read_text(encoding="utf-8"))
    for method in summary["methods"]:
        drafts = method["drafter"]["kind"] != "none"
        assert method["acceptance"] == ("replay" if drafts else "greedy")
        assert method["lossless"] is None


def test_sampling_reaches_every_method_with_the_blocks_seed(folder: SweepFolder) -> None:
    words = ("acceptance={kind: sampling,temperature: 0.8}", "sweep.precision=[fp16]")
    assert main(folder.overrides(*words)) == OK
    sent = [r["sampling"] for r in folder.requests() if r["call"] == "run"]
    assert {s["temperature"] for s in sent} == {0.8}
    assert len({s["seed"] for s in sent}) == 6
    assert all(r["losslessness"] is None for r in folder.records().values())


def test_a_head_of_another_target_ends_the_sweep_before_anything_is_timed(
    folder: SweepFolder, drafters: Drafters, capsys: pytest.CaptureFixture[str]
) -> None:
    drafters.head("head", "0" * 64, folder.path)
    assert main(folder.overrides(*drafters.words)) == BAD_CONFIGURATION
    assert "trained for another target" in capsys.readouterr().err
    assert {request["call"] for request in folder.requests()} <= {"hello", "close"}
    assert not folder.results.exists() or not folder.records()
