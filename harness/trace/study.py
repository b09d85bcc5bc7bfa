"""Figures of the agreement study that this project starts from, to stand beside measured ones.

Shibata's note on QSpec (2026): Llama-3-8B-Instruct, the QSpec checkpoint (rotated weights), GSM8K
test, 8-shot, 512 new tokens, greedy, draft length 3, one L40S. They are the study's; nothing of
them was measured here. Rates follow from its counts.
"""

from __future__ import annotations

from typing import Any

REQUESTS = 1_319
ROUNDS = 91_683
GAMMA = 3
AGREEMENTS = 263_984
POSITIONS = ROUNDS * GAMMA


def figures() -> dict[str, Any]:
    """The study's figures under the keys of an online table; absent where it has none."""
    return {
        "requests": REQUESTS,
        "rounds": ROUNDS,
        "positions": POSITIONS,
        "agreements": AGREEMENTS,
        "disagreements": POSITIONS - AGREEMENTS,
        "agreement_rate": AGREEMENTS / POSITIONS,
        "disagreement_rate": (POSITIONS - AGREEMENTS) / POSITIONS,
        "mean_draft_top1_prob": 0.9251,
        "mean_target_top1_prob": 0.9299,
        "median_draft_top1_prob": 0.99966,
        "median_target_top1_prob": 0.99986,
        "both_above_share": 0.8258,
        "both_above_agreement": 0.9996,
        "both_at_or_below_agreement": 0.7056,
    }
