"""What README and docs name is there: modules, targets of make, experiments, files and headings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WRITTEN_BY_READERS = ("backends.example_engine",)
"""The worker that adding-a-backend.md lets its reader write."""


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def anchors(page: Path) -> set[str]:
    """The names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in headings}


def test_commands_that_a_page_gives_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module in re.findall(r"python -m ((?:backends|benchmarks|harness|reports)[\w.]*\w)", text):
        path = ROOT / module.replace(".", "/")
        runs = path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
        assert runs or module in WRITTEN_BY_READERS, module
    for name in re.findall(r"\bexperiment=(\w+)", text):
        assert (ROOT / "conf" / "experiment" / f"{name}.yaml").is_file(), name
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE):
        assert target in targets, target


def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", page.read_text("utf-8")):
        if "://" in link:
            continue
        found = page.parent / link if link else page
        assert found.exists(), link
        if anchor:
            assert anchor in anchors(found), f"{link}#{anchor}"
