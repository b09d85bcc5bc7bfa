"""Worked solutions of the first 8 GSM8K train problems, in this project's own words.

The chain-of-thought form shows them after the questions, which come from the train file.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Worked:
    """`begins` is how the question begins that `solution` belongs to."""

    begins: str
    solution: str


WORKED = (
    Worked(
        "Natalia sold clips",
        "April brought 48 sales. May brought half of that, and half of 48 is 24. Both months "
        "together make 48 + 24 = 72. The answer is 72.",
    ),
    Worked(
        "Weng earns $12",
        "50 minutes are 50 / 60 = 5 / 6 of an hour. At $12 an hour that is 12 * 5 / 6 = 10 "
        "dollars. The answer is 10.",
    ),
    Worked(
        "Betty is saving",
        "Betty starts with half of $100, which is $50. Her parents add $15 and her grandparents "
        "2 * 15 = 30 dollars. So she has 50 + 15 + 30 = 95 dollars, and 100 - 95 = 5 are missing. "
        "The answer is 5.",
    ),
    Worked(
        "Julie is reading",
        "Yesterday Julie read 12 pages, today 2 * 12 = 24. That leaves 120 - 12 - 24 = 84 pages. "
        "Half of them is 84 / 2 = 42. The answer is 42.",
    ),
    Worked(
        "James writes",
        "Each time James writes 2 letters of 3 pages, so 2 * 3 = 6 pages. Twice a week makes 12 "
        "pages a week. A year has 52 weeks: 12 * 52 = 624. The answer is 624.",
    ),
    Worked(
        "Mark has a garden",
        "There are 10 yellow flowers. Purple ones are 80% more: 10 * 1.8 = 18. Yellow and purple "
        "together are 28, and a quarter of 28 is 7 green ones. In all 28 + 7 = 35. The answer is "
        "35.",
    ),
    Worked(
        "Albert is wondering",
        "The large pizzas give 2 * 16 = 32 slices, the small ones 2 * 8 = 16. Together that is "
        "32 + 16 = 48. The answer is 48.",
    ),
    Worked(
        "Ken created",
        "The box first weighs 2 pounds. Tripled that is 2 * 3 = 6. Two more pounds make 8. Doubled "
        "that is 8 * 2 = 16. The answer is 16.",
    ),
)
