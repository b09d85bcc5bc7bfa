"""Invented trials with known truth, for the error rates of the statistics.

Every block has a slowness of its own (drift), shared by its trials; every trial has noise of its
own, with a light or a heavy tail. A method's true log speedup is given; 0 makes an A/A family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from harness.derive import Trial
from harness.stats import FloatArray

Noise = Callable[[np.random.Generator, tuple[int, int]], FloatArray]
Drift = Callable[[np.random.Generator, int], FloatArray]


def student_noise(scale: float) -> Noise:
    """Student's t with three degrees of freedom: a standard deviation of 1.7 scales, fat tails."""
    return lambda rng, shape: scale * rng.standard_t(3, shape)


def spike_noise(scale: float, share: float = 0.08, height: float = 0.4) -> Noise:
    """Normal noise with log-normal spikes of slowness in `share` of the trials."""

    def draw(rng: np.random.Generator, shape: tuple[int, int]) -> FloatArray:
        spikes = height * rng.lognormal(0.0, 0.8, shape) * (rng.random(shape) < share)
        return scale * rng.standard_normal(shape) + spikes

    return draw


def linear_drift(size: float) -> Drift:
    """The machine slows down by `size` (log scale) from the first block to the last."""
    return lambda _, blocks: np.linspace(0.0, size, blocks)


def random_walk(step: float) -> Drift:
    """The machine's speed wanders by about `step` from block to block."""
    return lambda rng, blocks: np.cumsum(step * rng.standard_normal(blocks))


def cell(method_id: str, role: str, arm: str) -> dict[str, object]:
    """The axes that a comparison needs."""
    return {"method_id": method_id, "role": role, "arm": arm, "drafter": {"kind": "none"},
            "context_length": "natural", "batch_size": 1}  # fmt: skip


def trials(
    rng: np.random.Generator, blocks: int, noise: Noise, drift: Drift,
    effects: Sequence[float], *, prompts: int = 4, spread: float = 0.0,
) -> list[Trial]:  # fmt: skip
    """A group: baseline, its A/A twin, and a method for each true log speedup of `effects`.

    `spread` is the standard deviation, over prompts, of a method's log speedup.
    """
    names = [("fp16", "baseline"), ("fp16", "noise")]
    arms = ("quantization", "speculation", "combined")
    names += [(f"m{i:02d}", "method") for i in range(len(effects))]
    truth = np.array([0.0, 0.0, *effects])
    slow = noise(rng, (blocks, len(names))) + drift(rng, blocks)[:, None]
    found = []
    for block in range(blocks):
        tokens = rng.integers(20, 64, prompts).astype(float)
        base_s = tokens * 0.01 * np.exp(0.1 * rng.standard_normal(prompts))
        for index, (name, role) in enumerate(names):
            own = spread * rng.standard_normal(prompts) if role == "method" else 0.0
            seconds = base_s * np.exp(slow[block, index] - truth[index] + own)
            arm = arms[index % 3] if role == "method" else "baseline"
            found.append(
                Trial(
                    cell=cell(name, role, arm), group="g", block=f"{block:03d}", status="ok",
                    error=None, prompt_ids=tuple(map(str, range(prompts))), interleaved=True,
                    left_out={"count": 0, "reason": ""}, output_tokens=tokens + 1,
                    decode_s=seconds, prefill_s=np.full(prompts, 1e-9),
                )
            )  # fmt: skip
    return found
