"""Draws: coverage, determinism, strata, and contexts of an exact length."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.workload import GroupDraw, Workload, WorkloadError, load
from harness.workload.draw import DrawSequence, terciles
from harness.workload.prompt import Prompt
from tests.fakes.character_tokenizer import MODEL, START, USER, CharacterTokenizer


def make(folder: Path, rows: list[dict[str, Any]], **config: Any) -> Workload:
    requests, pool = folder / "requests.jsonl", folder / "pool.jsonl"
    requests.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pool.write_text(json.dumps({"text": "".join(chr(0x4E00 + i) for i in range(500))}))
    settings = {"name": "t", "path": str(requests), "pool_path": str(pool), **config}
    return load(settings, CharacterTokenizer(), MODEL)


def rows(count: int, step: int = 3) -> list[dict[str, Any]]:
    return [
        {"id": f"p{i}", "category": f"c{i % 4}", "prompt": "x" * (1 + step * i)}
        for i in range(count)
    ]


GROUPS = (GroupDraw(4, "natural"), GroupDraw(8, "natural"), GroupDraw(2, 1024))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("seed", range(5))
def test_84_draws_use_each_of_72_prompts(tmp_path: Path, order: tuple[int, ...], seed: int) -> None:
    workload = make(tmp_path, rows(72))
    groups = [GROUPS[i] for i in order]
    uses: Counter[str] = Counter()
    for block in range(6):
        for index, group in enumerate(groups):
            draw = workload.draw(block, *group, seed, index, groups)
            assert len(draw.prompts) == group.prompts
            uses.update(prompt.id for prompt in draw.prompts)
    assert len(uses) == 72
    assert sum(uses.values()) == 84
    assert max(uses.values()) == 2


prompt_lists = st.lists(
    st.tuples(st.integers(1, 40), st.sampled_from("abcd")), min_size=1, max_size=40
).map(lambda pairs: [Prompt(f"p{i}", (7,) * n, 8, category=c) for i, (n, c) in enumerate(pairs)])
group_lists = st.lists(
    st.tuples(st.integers(1, 12), st.one_of(st.just("natural"), st.integers(1, 50))),
    min_size=1,
    max_size=4,
)


def sequence(prompts: list[Prompt], groups: list[Any], seed: int) -> DrawSequence:
    fits = [
        [length == "natural" or len(p.token_ids) <= length for p in prompts] for _, length in groups
    ]
    return DrawSequence(prompts, [GroupDraw(*group) for group in groups], fits, seed)


@settings(deadline=None)
@given(prompt_lists, group_lists, st.integers(0, 5), st.integers(1, 6))
def test_draws_are_distinct_fitting_and_cover(
    prompts: list[Prompt], groups: list[Any], seed: int, blocks: int
) -> None:
    draws = sequence(prompts, groups, seed)
    uses: Counter[int] = Counter()
    for block in range(blocks):
        for group, (count, length) in enumerate(groups):
            fitting = [
                i
                for i, p in enumerate(prompts)
                if length == "natural" or len(p.token_ids) <= length
            ]
            before = Counter(uses)
            taken = draws.indices(group, block)
            assert len(set(taken)) == len(taken) == min(count, len(fitting))
            assert set(taken) <= set(fitting)
            # Nobody comes again while one that fits, and is not in this draw, came less often.
            waiting = [before[i] for i in fitting if i not in taken]
            assert not waiting or max(before[i] for i in taken) <= min(waiting)
            uses.update(taken)


@settings(deadline=None)
@given(prompt_lists, group_lists, st.integers(0, 5), st.data())
def test_a_draw_does_not_depend_on_what_was_drawn_before(
    prompts: list[Prompt], groups: list[Any], seed: int, data: st.DataObject
) -> None:
    pairs = [(group, block) for group in range(len(groups)) for block in range(4)]
    once = sequence(prompts, groups, seed)
    expected = {pair: once.indices(*pair) for pair in pairs}
    again = sequence(prompts, groups, seed)
    for pair in data.draw(st.permutations(pairs)):
        assert again.indices(*pair) == expected[pair]


def test_the_seed_changes_the_draws(tmp_path: Path) -> None:
    workload = make(tmp_path, rows(40))
    first, second = (workload.draw(0, 8, "natural", seed).prompts for seed in (1, 2))
    assert first != second


def test_draws_are_balanced_over_lengths_and_categories() -> None:
    prompts = [
        Prompt(f"{c}{t}{i}", (7,) * (100 * t + 1 + i), 8, category=c)
        for t in range(3)
        for c in "abcd"
        for i in range(4)
    ]
    third = terciles(prompts)
    draws = sequence(prompts, [(12, "natural")], seed=3)
    for block in range(4):  # four draws of 12 use the 48 prompts once
        taken = draws.indices(0, block)
        assert Counter(third[i] for i in taken) == {0: 4, 1: 4, 2: 4}
        assert Counter(prompts[i].category for i in taken) == dict.fromkeys("abcd", 3)


def test_small_draws_are_balanced_where_strata_differ_in_size() -> None:
    sizes = {"a": 20, "b": 5, "c": 5, "d": 5}
    prompts = [
        Prompt(f"{c}{t}{i}", (7,) * (100 * t + 1 + i), 8, category=c)
        for t in range(3)
        for c, size in sizes.items()
        for i in range(size)
    ]
    third = terciles(prompts)
    draws = sequence(prompts, [(3, "natural")], seed=3)
    for block in range(10):
        taken = draws.indices(0, block)
        assert {third[i] for i in taken} == {0, 1, 2}
        assert len({prompts[i].category for i in taken}) == 3


def test_terciles_are_equal_thirds_by_length() -> None:
    prompts = [Prompt(f"p{n}", (7,) * n, 8) for n in (9, 1, 5, 3, 7, 2)]
    assert terciles(prompts) == [2, 0, 1, 1, 2, 0]


def test_fewer_prompts_than_asked(tmp_path: Path) -> None:
    draw = make(tmp_path, rows(3)).draw(0, 8, "natural", 0)
    assert sorted(prompt.id for prompt in draw.prompts) == ["p0", "p1", "p2"]


def test_fixed_context_is_exact_and_keeps_the_prompt(tmp_path: Path) -> None:
    workload = make(tmp_path, [*rows(40), {"id": "ids", "token_ids": [5] * 30, "category": "c0"}])
    plain = {prompt.id: prompt for prompt in workload.prompts}
    head = (START, USER, *CharacterTokenizer().encode("user\n"))
    seen = set()
    for block in range(5):
        draw = workload.draw(block, 10, 300, seed=1)
        assert draw.left_out == {"count": 0, "reason": None}
        assert not draw.pool_repeats
        for prompt in draw.prompts:
            original = plain[prompt.id].token_ids
            seen.add(prompt.id)
            assert len(prompt.token_ids) == 300
            start = () if prompt.id == "ids" else head
            assert prompt.token_ids[: len(start)] == start
            rest = original[len(start) :]
            assert prompt.token_ids[-len(rest) :] == rest
            separator = prompt.token_ids[-len(rest) - 2 : -len(rest)]
            assert separator == (20, 20)  # an empty line
    assert len(seen) == 41


def test_filled_prompts_do_not_share_a_prefix(tmp_path: Path) -> None:
    workload = make(tmp_path, rows(40))
    head = len((START, USER)) + len("user\n")
    starts = {
        prompt.token_ids[head : head + 4] for prompt in workload.draw(0, 40, 300, seed=1).prompts
    }
    assert len(starts) == 40


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_the_last_tokens_of_room_are_filled(tmp_path: Path, missing: int) -> None:
    workload = make(tmp_path, rows(1))
    length = len(workload.prompts[0].token_ids) + missing
    (prompt,) = workload.draw(0, 1, length, seed=1).prompts
    assert len(prompt.token_ids) == length


def test_a_context_longer_than_the_pool_is_said_to_repeat_it(tmp_path: Path) -> None:
    draw = make(tmp_path, rows(4)).draw(0, 2, 1024, seed=1)
    assert draw.pool_repeats
    assert {len(prompt.token_ids) for prompt in draw.prompts} == {1024}


def test_prompts_longer_than_the_context_are_left_out_and_counted(tmp_path: Path) -> None:
    workload = make(
        tmp_path,
        [
            {"id": name, "token_ids": [7] * size}
            for name, size in [("a", 10), ("b", 100), ("c", 101), ("d", 200)]
        ],
    )
    draw = workload.draw(0, 4, 100, seed=1)
    assert sorted(prompt.id for prompt in draw.prompts) == ["a", "b"]
    assert draw.left_out == {"count": 2, "reason": "longer than 100 tokens: c, d"}


def test_a_group_with_no_prompt_left_is_not_applicable(tmp_path: Path) -> None:
    workload = make(tmp_path, rows(4))
    draw = workload.draw(0, 2, 5, seed=1)
    assert not draw.applicable
    assert draw.left_out["count"] == 4
    past_the_end = workload.draw(0, 2, 4096, seed=1)
    assert not past_the_end.applicable
    assert "the model's context of 4096" in str(past_the_end.left_out["reason"])


def test_fixed_context_without_a_pool_is_refused(tmp_path: Path) -> None:
    workload = make(tmp_path, rows(4), pool_path=None)
    with pytest.raises(WorkloadError, match=r"Give workload\.pool_path=FILE"):
        workload.draw(0, 2, 100, seed=1)


@pytest.mark.parametrize(
    "arguments",
    [{"block": -1}, {"count": 0}, {"group_index": 3}, {"groups": [GroupDraw(5, "natural")]}],
)
def test_impossible_draws_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    workload = make(tmp_path, rows(4))
    with pytest.raises(ValueError, match="draw"):
        workload.draw(
            **{"block": 0, "count": 2, "context_length": "natural", "seed": 1, **arguments}
        )
