"""The native engine against the transformers backend: two programs, one file, one text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from backends.tokenizer import Tokenizer
from tests.conformance.served import TIMEOUT_S

DEMO = registry.ROOT / "models" / "smollm2-135m-instruct.sqm"
TEXTS = [
    "Mia has 3 boxes of 24 pencils. She gives 17 pencils to her class and shares the rest equally "
    "among 5 friends. How many pencils does each friend get? She has 3 * 24 = 72 pencils. After "
    "giving 17 away she has 72 - 17 = 55. Each friend gets 55 / 5 = 11 pencils. The answer is 11.",
    "The harbour was quiet in the morning. Two boats lay at the pier, and an old man mended a net "
    "while gulls walked along the wall as if they owned it.",
    "def mean(values):\n    if not values:\n        raise ValueError('no values')\n    return "
    "sum(values) / len(values)\n",
]
LARGEST_DIFFERENCE = 0.05
PERPLEXITY_RATIO = 1e-3


def scores(name: str, model: Path, sequences: list[list[int]]) -> list[dict[str, Any]]:
    """fp16 scores of a backend, or a skip where it is not installed."""
    backend = registry.backend(name)
    if not backend.program.exists():
        pytest.skip(f"{name} is not installed here ({backend.made_by})")
    with backend.start() as worker:
        worker.call(
            "load",
            timeout_s=TIMEOUT_S,
            model={"path": str(model)},
            precisions=["fp16"],
            drafters=[],
            max_context=512,
            max_batch=1,
            seed=0,
        )
        answer = worker.call("score", timeout_s=TIMEOUT_S, sequences=sequences, precision="fp16")
        return list(answer["sequences"])


@pytest.mark.backend
def test_native_and_transformers_give_the_same_probabilities() -> None:
    if not DEMO.exists():
        pytest.skip("the demo model is not packed; run 'python -m backends.pack demo'")
    tokenizer = Tokenizer.from_packed(DEMO)
    sequences = [tokenizer.encode(text) for text in TEXTS]
    native = [value for s in scores("native", DEMO, sequences) for value in s["logprob"]]
    theirs = [value for s in scores("transformers", DEMO, sequences) for value in s["logprob"]]
    largest = max(abs(ours - other) for ours, other in zip(native, theirs, strict=True))
    assert largest < LARGEST_DIFFERENCE
    ratio = math.exp((sum(theirs) - sum(native)) / len(native))
    assert ratio == pytest.approx(1, abs=PERPLEXITY_RATIO)
    # A model that has understood nothing would agree with itself as well.
    assert math.exp(-sum(native) / len(native)) < 20
