"""The drafting experiments compose, and hold what they promise."""

from __future__ import annotations

import pytest
from hydra import compose, initialize_config_module

from harness import config, plan
from harness.methods import Method

STUDIED = [1, 3, 7, 15, 31, 60, 63]


def methods(experiment: str) -> list[Method]:
    with initialize_config_module("conf", version_base="1.3"):
        settings = config.read(compose("config", overrides=[f"+experiment={experiment}"]))
    whole = plan.build(settings, model="m", workload="w", device="d")
    return [cell.method for group in whole.groups for cell in group.cells]


@pytest.mark.parametrize("experiment", ["w4_tree", "w4_tree_gpu"])
def test_w4_tree_has_the_studied_trees_and_chains_under_each_precision(experiment: str) -> None:
    found = methods(experiment)
    for precision in ("fp16", "w4a16", "w4a8"):
        own = [m for m in found if m.precision == precision]
        assert [m.drafted for m in own if m.shape["kind"] == "tree"] == STUDIED
        assert [m.drafted for m in own if m.shape["kind"] == "chain"] == [2, 4, 6]
        assert any(m.plain for m in own)


def test_hierarchical_has_every_way_of_drafting_under_each_precision() -> None:
    kinds = {"none", "ngram", "self", "model", "head", "cascade"}
    for precision in ("fp16", "w4a16", "w4a8"):
        own = [m for m in methods("hierarchical") if m.precision == precision]
        assert {m.drafter["kind"] for m in own} == kinds
        assert {m.shape["kind"] for m in own if m.drafter["kind"] == "head"} == {"chain", "tree"}


def test_the_hierarchy_on_the_gpu_is_the_studys_and_is_replayed() -> None:
    found = methods("hierarchical_gpu")
    (cascade,) = (m for m in found if m.drafter["kind"] == "cascade")
    assert cascade.shape == {"kind": "chain", "gamma": 6}
    assert cascade.drafter["inner_shape"] == {"kind": "tree", "depth": 3, "top_k": 10, "nodes": 30}
    for method in found:
        assert method.plain or method.acceptance.kind == "replay"
        assert method.plain or "assumed" in str(method.acceptance.source)


def test_drafting_covers_the_prompt_set_in_six_blocks() -> None:
    with initialize_config_module("conf", version_base="1.3"):
        settings = config.read(compose("config", overrides=["+experiment=drafting"]))
    assert settings.draw.prompts * settings.schedule.min_blocks >= 13 * 10 + 40
    assert {m.precision for m in methods("drafting")} == {"fp16", "w4a8"}
