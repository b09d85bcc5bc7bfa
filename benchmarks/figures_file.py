"""The file of a benchmark's figures, as docs/reference keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write_figures(path: Path | None, figures: Any) -> None:
    """Write figures as indented JSON, and the folder with them; without a path, do nothing."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
