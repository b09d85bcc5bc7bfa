"""Groups and cells of a sweep, and what makes two of them equal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from harness import config, plan
from harness.config import DrawSettings, Settings
from harness.errors import ConfigError
from harness.plan import Identity, Plan

IDENTITY = Identity(
    model="m", workload="w", builds={"native": "1"}, devices={"native": {"name": "cpu"}},
    statistics={"level": 0.95}, seed=0,
)  # fmt: skip


def settings(*overrides: str) -> Settings:
    with initialize_config_module("conf", version_base="1.3"):
        return config.read(compose("config", overrides=list(overrides)))


def built(*overrides: str) -> Plan:
    return plan.build(settings(*overrides), model="My Model/7B", workload="prod", device="cpu")


def test_groups_are_the_product_and_the_further_products() -> None:
    whole = built(
        "sweep.batch_size=[1,4]", "sweep.context_length=[natural,256]",
        "sweep.also=[{batch_size: [8], precision: [w4a8]}]",
    )  # fmt: skip
    assert [group.name for group in whole.groups] == [
        "my-model-7b.prod.cpu.b1.natural", "my-model-7b.prod.cpu.b1.c256",
        "my-model-7b.prod.cpu.b4.natural", "my-model-7b.prod.cpu.b4.c256",
        "my-model-7b.prod.cpu.b8.natural", "my-model-7b.prod.cpu.b8.c256",
    ]  # fmt: skip
    assert [group.index for group in whole.groups] == list(range(6))
    ids = {cell.method.method_id for cell in whole.groups[4].cells}
    assert ids == {"fp16", "w4a8", *(f"w4a8+ngram-chain{gamma}" for gamma in (2, 3, 5))}


def test_two_products_of_one_group_are_joined_without_doubles() -> None:
    whole = built("sweep.draft_length=[2]", "sweep.also=[{draft_length: [5]}]")
    (group,) = whole.groups
    ids = [(cell.method.method_id, cell.role) for cell in group.cells]
    assert len(ids) == len(set(ids))
    assert {cell.method.shape.get("gamma") for cell in group.cells} == {None, 2, 5}
    assert group.most_pending == 5


def test_every_group_holds_the_baseline_and_its_second_run() -> None:
    for group in built().groups:
        assert group.baseline.method.method_id == "fp16"
        roles = [cell.role for cell in group.cells if cell.method.is_baseline]
        assert roles == ["baseline", "noise"]
    for group in built("noise_pair=false").groups:
        assert [cell.role for cell in group.cells if cell.method.is_baseline] == ["baseline"]


@pytest.mark.parametrize(
    ("batch", "context", "count"),
    [(1, "natural", 4), (2, "natural", 4), (4, "natural", 8), (1, 256, 4), (1, 1024, 2),
     (4, 1024, 4)],
)  # fmt: skip
def test_a_draw_fills_all_slots_and_is_short_where_prefill_is_long(
    batch: int, context: Any, count: int
) -> None:
    sizes = DrawSettings(prompts=4, per_slot=2, long_context=512, long_prompts=2)
    assert sizes.count(batch, context) == count


CHANGES: list[dict[str, Any]] = [
    {"model": "n"}, {"workload": "x"}, {"builds": {"native": "2"}},
    {"devices": {"native": {"name": "gpu"}}}, {"statistics": {"level": 0.9}}, {"seed": 1},
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_cells_hash_covers_all_that_its_figures_depend_on(change: dict[str, Any]) -> None:
    whole = built()
    other = replace(IDENTITY, **change)
    assert whole.fingerprint(IDENTITY) != whole.fingerprint(other)
    for group in whole.groups:
        for cell in group.cells:
            assert cell.hash(IDENTITY) != cell.hash(other)


def test_hashes_are_unique_and_the_same_in_every_sweep() -> None:
    hashes = [cell.hash(IDENTITY) for group in built().groups for cell in group.cells]
    assert len(set(hashes)) == len(hashes)
    again = built("schedule.budget_s=1", "cost.device_price_per_hour=9")
    assert [c.hash(IDENTITY) for g in again.groups for c in g.cells] == hashes
    assert again.fingerprint(IDENTITY) == built().fingerprint(IDENTITY)


@pytest.mark.parametrize("override", ["draw.prompts=3", "sweep.draft_length=[2]", "sweep.also=[]"])
def test_another_plan_has_another_fingerprint(override: str) -> None:
    assert built(override).fingerprint(IDENTITY) != built().fingerprint(IDENTITY)


def test_a_cache_larger_than_the_memory_is_refused_by_name() -> None:
    whole = built("sweep.also=[]")
    plan.check_memory(whole, {whole.groups[0].name: 100}, 100)
    with pytest.raises(ConfigError, match=r"sweep\.batch_size=1: the KV cache alone"):
        plan.check_memory(whole, {whole.groups[0].name: 101}, 100)
