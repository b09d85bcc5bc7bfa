"""How fast the fakes are: invented, in the proportions of the demo model on two cores."""

STEP_S = {"fp16": 0.0100, "w4a16": 0.0040, "w4a8": 0.0032, "w4a4": 0.0032}
"""Seconds of one forward of a row."""
ROW_SHARE = {"fp16": 0.06, "w4a16": 0.18, "w4a8": 0.06, "w4a4": 0.06}
"""The share of that which each further row adds."""
BYTES = {"fp16": 269_000_000, "w4a16": 96_000_000, "w4a8": 96_000_000, "w4a4": 96_000_000}
"""Weight bytes that a forward of one row reads."""


def forward_s(precision: str, rows: int) -> float:
    """Seconds of one forward of `rows` rows."""
    return STEP_S[precision] * (1.0 + ROW_SHARE[precision] * (rows - 1))
