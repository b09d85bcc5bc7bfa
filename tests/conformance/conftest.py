"""Workers under test: those installed here, or the one that --worker names."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backends import registry
from backends.client import Worker
from backends.pack.gguf_import import pack_gguf
from tests.conformance.served import Served
from tests.fakes.tiny_llama import write_gguf

ROOT = registry.ROOT
GUIDE = ROOT / "docs" / "adding-a-backend.md"
MAX_CONTEXT, MAX_BATCH = 256, 4


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite; they exist where tests/conformance is named on the command line."""
    parser.addoption("--worker", help="command line of the worker to test")
    parser.addoption("--model", help="packed model file to test with; default: a tiny one")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test for every worker."""
    if "command" not in metafunc.fixturenames:
        return
    given = metafunc.config.getoption("--worker", default=None)
    if given:
        names: list[Any] = [given]
    else:
        optional = [name for name in registry.names() if name != "native"]
        names = ["guide", "native"]
        names += [pytest.param(name, marks=pytest.mark.backend) for name in optional]
    metafunc.parametrize("command", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def command(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The worker's command line, to be started in the repository's root."""
    if request.config.getoption("--worker", default=None):
        return shlex.split(request.param)
    if request.param == "guide":
        # The worker that the guide for newcomers prints: it must be as good as the guide says.
        (source,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        path = tmp_path_factory.mktemp("guide") / "example_engine.py"
        path.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{source}")
        return [sys.executable, str(path)]
    backend = registry.backend(request.param)
    if not backend.program.exists():
        pytest.skip(f"{request.param} is not installed here ({backend.made_by})")
    return list(backend.command)


@pytest.fixture(scope="session")
def model_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed Llama of two layers with random weights, or what --model names."""
    given = request.config.getoption("--model", default=None)
    if given:
        return Path(given).absolute()
    folder = tmp_path_factory.mktemp("model")
    write_gguf(folder / "tiny.gguf", layers="Q4_1", head="Q8_0")
    pack_gguf(folder / "tiny.gguf", folder / "tiny.sqm")
    return folder / "tiny.sqm"


@pytest.fixture(scope="session")
def served(command: list[str], model_path: Path) -> Iterator[Served]:
    """A worker that has loaded the model in every precision that it serves."""
    with Worker(command, name=command[0], cwd=ROOT) as worker:
        yield Served.load(worker, model_path, MAX_CONTEXT, MAX_BATCH)
