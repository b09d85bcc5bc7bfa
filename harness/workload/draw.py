"""Which prompts a trial gets: stratified, and without replacement over all groups and blocks.

The groups of a run take turns: block 0 of every group, then block 1 of every group, and so on.
Each turn takes the prompts that were used least so far, so that no prompt comes a second time
before every other one came once. The order is fixed by the seed and the groups alone, and never
by what was run, so a resumed run draws what an uninterrupted one would have.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypedDict

from harness.workload.prompt import Prompt
from harness.workload.settings import ContextLength


class GroupDraw(NamedTuple):
    """What one group of a run takes in every block."""

    prompts: int
    context_length: ContextLength


class LeftOut(TypedDict):
    """Prompts of the workload that a group cannot take; the reason is None where there are none."""

    count: int
    reason: str | None


@dataclass(frozen=True)
class Draw:
    """The prompts of one block of one group, and what it could not take.

    ``prompts`` is empty where the group is not applicable (``left_out`` says why), and shorter
    than asked where the workload has fewer prompts that fit. ``pool_repeats`` is true where a
    fixed context was longer than the pool, so that its text occurs twice in one prompt, which
    flatters prompt lookup.
    """

    prompts: tuple[Prompt, ...]
    left_out: LeftOut
    pool_repeats: bool = False

    @property
    def applicable(self) -> bool:
        """False where no prompt of the workload fits the group."""
        return bool(self.prompts)


class _Place(NamedTuple):
    """A prompt's place in its stratum's queue: fewest uses first, then the seeded order."""

    uses: int
    order: str
    prompt: int


class DrawSequence:
    """The draws of all groups of a run, made in their fixed order and remembered."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        groups: Sequence[GroupDraw],
        fits: Sequence[Sequence[bool]],
        seed: int,
    ) -> None:
        """Args: ``fits[g][i]`` says whether group g can take prompt i."""
        self._prompts = prompts
        self._groups = groups
        self._fits = fits
        self._seed = seed
        self._terciles = terciles(prompts)
        self._blocks: list[list[tuple[int, ...]]] = []
        self._queues: dict[tuple[int, str], list[_Place]] = {}
        for index in range(len(prompts)):
            self._queue(index, uses=0)

    def indices(self, group: int, block: int) -> tuple[int, ...]:
        """Indices of the prompts of a block of a group, all different."""
        while len(self._blocks) <= block:
            self._blocks.append(
                [
                    self._take(group.prompts, fits)
                    for group, fits in zip(self._groups, self._fits, strict=True)
                ]
            )
        return self._blocks[block][group]

    def _queue(self, index: int, uses: int) -> None:
        prompt = self._prompts[index]
        order = hashlib.sha256(f"{self._seed}/{uses}/{prompt.id}".encode()).hexdigest()
        queue = self._queues.setdefault((self._terciles[index], prompt.category), [])
        insort(queue, _Place(uses, order, index))

    def _take(self, count: int, fits: Sequence[bool]) -> tuple[int, ...]:
        taken: list[_Place] = []
        of_tercile: Counter[int] = Counter()
        of_category: Counter[str] = Counter()
        while len(taken) < count:
            best: tuple[tuple[int, int, int, int, str], tuple[int, str], _Place] | None = None
            for stratum, queue in self._queues.items():
                place = next((p for p in queue if fits[p.prompt]), None)
                if place is None:
                    continue
                equally_used = bisect_left(queue, _Place(place.uses + 1, "", -1))
                # Coverage first, then balance within the draw; among equals the stratum with
                # most left, so that the end of a lap is as mixed as its start.
                key = (
                    place.uses,
                    of_tercile[stratum[0]],
                    of_category[stratum[1]],
                    -equally_used,
                    place.order,
                )
                if best is None or key < best[0]:
                    best = (key, stratum, place)
            if best is None:
                break
            _, stratum, place = best
            self._queues[stratum].remove(place)
            of_tercile[stratum[0]] += 1
            of_category[stratum[1]] += 1
            taken.append(place)
        for place in taken:
            self._queue(place.prompt, place.uses + 1)
        return tuple(place.prompt for place in taken)


def terciles(prompts: Sequence[Prompt]) -> list[int]:
    """The third of the prompts by length that each one belongs to: 0 short, 2 long."""
    ordered = sorted(range(len(prompts)), key=lambda i: (len(prompts[i].token_ids), prompts[i].id))
    result = [0] * len(prompts)
    for place, index in enumerate(ordered):
        result[index] = place * 3 // len(prompts)
    return result
