"""What an import could not keep."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Rounding:
    """Counts by kind of loss, for the notes of the packed file."""

    counts: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    widened: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, lost: int, total: int) -> None:
        """`lost` of `total` values of the sort `what` were rounded."""
        self.counts[what] += lost
        self.totals[what] += total

    def widen(self, why: str) -> None:
        """A matrix of codes is stored as 16-bit weights, because its codes are `why`."""
        self.widened[why] += 1

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
        return lost + widened
