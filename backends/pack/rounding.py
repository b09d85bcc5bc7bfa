"""What an import could not keep, or not be sure of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Rounding:
    """Counts by kind of loss, for the notes of the packed file."""

    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    widened: Counter[str] = field(default_factory=Counter)
    wrapped_zeros: int = 0

    def add(self, what: str, lost: int, total: int) -> None:
        """`lost` of `total` values of the sort `what` were rounded."""
        self.counts[what] += lost
        self.totals[what] += total

    def widen(self, why: str) -> None:
        """A matrix of codes is stored as 16-bit weights, because its codes are `why`."""
        self.widened[why] += 1

    def wrap(self, count: int) -> None:
        """`count` zero points are stored as the largest code in the first version of GPTQ."""
        self.wrapped_zeros += count

    def notes(self) -> list[str]:
        """Sentences about every loss, none where the import is exact."""
        lost = [
            f"{count} of {self.totals[what]} {what} were rounded to f16."
            for what, count in self.counts.items()
            if count
        ]
        widened = [
            f"{count} matrices have codes {why}: stored as 16-bit weights, rounded as their "
            "library rounds them, so that precisions of 4- and 8-bit weights cannot be served."
            for why, count in self.widened.items()
        ]
        doubts = [
            f"{self.wrapped_zeros} zero points are stored as the largest code, which this version "
            "of GPTQ's format leaves open: read as one beyond it, as most kernels of AutoGPTQ do; "
            "the oldest reads 0."
        ]
        return lost + widened + (doubts if self.wrapped_zeros else [])


def source_notes(notes: list[str]) -> dict[str, list[str]]:
    """The entry `notes` of a packed file's `source`, left out where there is nothing to say.

    The content hash covers `source`: a file keeps its hash when a later version knows more notes.
    """
    return {"notes": notes} if notes else {}
