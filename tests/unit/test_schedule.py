"""Which block is next: least blocks in turn, then undecided groups while time is left."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness import schedule
from harness.schedule import Schedule


class Clock:
    """Stands for `time`; a block of a group takes the seconds given."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Runner:
    """Stands for a GroupRunner: no worker, only time that passes."""

    clock: Clock
    costs: Mapping[str, float]
    log: list[tuple[str, int]]
    dead: set[str]
    without_baseline: set[str]

    def __init__(self, _bench: Any, group: Any) -> None:
        self.group = group

    def live_cells(self) -> list[int]:
        return [] if self.group.name in self.dead else [1, 2]

    def comparable(self) -> bool:
        return self.group.name not in self.dead | self.without_baseline

    def run(self, block: int, _watch: Any) -> list[Any]:
        self.log.append((self.group.name, block))
        self.clock.now += self.costs[self.group.name]
        return []


class Silent:
    """A watcher that notes the time left it is told."""

    def __init__(self) -> None:
        self.left: list[float | None] = []

    def block_begins(self, _group: Any, _block: int, _cells: int, left_s: float | None) -> None:
        self.left.append(left_s)

    def cell_begins(self, _cell: Any) -> None: ...

    def block_ended(self, *_: Any) -> None: ...


Found = dict[str, dict[str, Any]]


class Bench:
    """Runs a schedule of imagined groups `a`, `b` ... in a folder."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.clock = Clock()
        self.watcher = Silent()
        monkeypatch.setattr(schedule, "time", self.clock)
        monkeypatch.setattr(schedule, "GroupRunner", Runner)
        monkeypatch.setattr(schedule.curves, "measure", lambda *_: None)

    def run(
        self, costs: Mapping[str, float], *, budget_s: float | None, found: Found | None = None,
        done: Mapping[str, Sequence[int]] | None = None, dead: Sequence[str] = (),
        without_baseline: Sequence[str] = (), target: float = 0.02,
    ) -> list[tuple[str, int]]:  # fmt: skip
        Runner.clock, Runner.costs, Runner.log, Runner.dead = self.clock, costs, [], set(dead)
        Runner.without_baseline = set(without_baseline)
        settings = SimpleNamespace(budget_s=budget_s, min_blocks=2, target=target)
        bench: Any = SimpleNamespace(
            settings=SimpleNamespace(schedule=settings),
            folder=SimpleNamespace(
                path=self.path, finished_blocks=lambda name: list((done or {}).get(name, ()))
            ),
            applicable=lambda group: group.name != "none",
        )
        groups: Any = [SimpleNamespace(name=name) for name in costs]
        answers = found or {}
        Schedule(bench, groups, lambda _: answers, self.watcher, self.clock.now).run()
        return Runner.log


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_groups_take_turns_and_get_their_least_blocks_without_a_budget(bench: Bench) -> None:
    assert bench.run({"a": 5, "b": 1}, budget_s=0) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_further_blocks_go_to_undecided_groups_until_none_fits(bench: Bench) -> None:
    log = bench.run({"a": 1, "b": 1}, budget_s=7.5, found={"a": {"decided": True}})
    assert log[4:] == [("b", 2), ("b", 3), ("b", 4)]
    assert bench.clock.now <= 7.5


def test_a_group_without_a_baseline_gets_its_least_blocks_and_no_more(bench: Bench) -> None:
    log = bench.run({"a": 1, "b": 1}, budget_s=6, without_baseline="a")
    assert log == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3)]


def test_a_block_that_would_pass_the_budget_gives_way_to_a_shorter_one(bench: Bench) -> None:
    log = bench.run({"a": 4, "b": 1}, budget_s=12.5)
    assert log[4:] == [("b", 2), ("b", 3)]


def test_undecided_groups_share_the_time_left(bench: Bench) -> None:
    log = bench.run({"a": 1, "b": 1}, budget_s=8)
    assert [name for name, _ in log].count("a") == 4


def test_a_decided_sweep_ends_before_its_budget(bench: Bench) -> None:
    decided = {"a": {"decided": True}}
    assert bench.run({"a": 1}, budget_s=1000, found=decided) == [("a", 0), ("a", 1)]


def test_finished_blocks_are_not_run_again_and_gaps_are_filled(bench: Bench) -> None:
    assert bench.run({"a": 1, "b": 1}, budget_s=0, done={"a": [0, 1], "b": [1]}) == [("b", 0)]


def test_the_budget_counts_what_an_earlier_sweep_spent(bench: Bench) -> None:
    bench.run({"a": 1}, budget_s=4)
    assert json.loads((bench.path / "schedule.json").read_text())["spent_s"] == 4
    bench.clock.now = 1000.0
    assert bench.run({"a": 1}, budget_s=4, done={"a": range(4)}) == []
    assert bench.run({"a": 1}, budget_s=6, done={"a": range(4)}) == [("a", 4), ("a", 5)]


def test_without_a_budget_blocks_are_measured_until_the_target(bench: Bench) -> None:
    found: Found = {"a": {"decided": True, "widest_half_width": 0.02}}
    assert len(bench.run({"a": 1}, budget_s=None, found=found)) == 2

    class Narrowing(dict[str, Any]):
        """Half-widths that shrink with every look."""

        def get(self, _key: str, _default: Any = None) -> Any:
            return {"widest_half_width": 0.2 / len(Runner.log)}

    assert len(bench.run({"a": 1}, budget_s=None, found=Narrowing({"a": {}}))) == 10


def test_groups_whose_methods_all_failed_or_that_do_not_apply_are_left_alone(bench: Bench) -> None:
    log = bench.run({"a": 1, "dead": 1, "none": 1}, budget_s=4, dead=["dead"])
    assert {name for name, _ in log} == {"a"}


def test_the_time_left_is_the_greater_of_budget_and_least_blocks(bench: Bench) -> None:
    bench.run({"a": 5, "b": 5}, budget_s=0)
    assert bench.watcher.left == [None, 15.0, 10.0, 5.0]
    bench.watcher.left.clear()
    (bench.path / "schedule.json").unlink()
    bench.run({"a": 5}, budget_s=100, found={"a": {"decided": True}})
    assert bench.watcher.left == [None, 95.0]
