"""Fixtures of the integration tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.folder import SweepFolder


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    """A folder to sweep in."""
    return SweepFolder(tmp_path)
