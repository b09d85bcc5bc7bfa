"""Training is tested where PyTorch is: .venvs/train/bin/python -m pytest tests/train."""

from __future__ import annotations

import importlib.util

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
NEED_TORCH = ["test_network.py", "test_head.py", "test_training.py", "test_published_heads.py"]
collect_ignore = [] if HAS_TORCH else NEED_TORCH


@pytest.fixture
def tiny():
    """A target of random weights: 3 layers, width 64, 96 tokens."""
    from tests.train.tiny import target

    return target()
