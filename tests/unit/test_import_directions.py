"""The directions of imports that docs/architecture.md promises, read from the sources."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("backends", "reports", "harness", "benchmarks")
ALLOWED = {
    "backends": frozenset[str](),
    "reports": frozenset[str](),
    "harness": frozenset({"backends.client", "backends.protocol", "backends.tokenizer", "reports"}),
    "benchmarks": frozenset({"backends", "reports", "harness"}),
}
"""What of the other folders each may import: a module, or a whole folder."""


def module_name(path: Path) -> str:
    """The dotted name of a source file, given relative to the root."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, frozenset[str]]:
    """The project's modules that each module imports, at any depth of its code."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    known = {module_name(path.relative_to(ROOT)): path for path in paths}
    found = {}
    for name, path in known.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: a relative import"
                module = str(node.module)
                named |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        found[name] = frozenset((named & known.keys()) - {name, *FOLDERS})
    return found


def reached_from(start: str) -> frozenset[str]:
    """`start` and all that it imports, directly or not."""
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += imports()[name]
    return frozenset(seen)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_what_it_may(folder: str) -> None:
    modules = [name for name in imports() if name.split(".")[0] == folder]
    assert modules
    for name in modules:
        for other in imports()[name]:
            top = other.split(".")[0]
            assert top == folder or {top, other} & ALLOWED[folder], f"{name} imports {other}"


def test_no_module_imports_itself_through_others() -> None:
    for name, direct in imports().items():
        for other in direct:
            assert name not in reached_from(other), f"{name} and {other} import each other"


@pytest.mark.parametrize("name", ["harness.analysis", "harness.compare", "harness.plan"])
def test_records_are_planned_and_read_without_an_engine(name: str) -> None:
    reached = reached_from(name)
    assert len(reached) > 1
    assert not [other for other in reached if other.split(".")[0] in ("backends", "reports")]
