"""The doctor: what it finds, what it tells one to do, and its exit status."""

from __future__ import annotations

import pytest

from harness.doctor import main
from tests.integration.folder import SweepFolder


def test_a_healthy_installation_can_run(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides()) == 0
    printed = capsys.readouterr().out
    for part in ("worker native: version 0 on fake-cpu", "model: Fake-1M", "cores:", "disk:"):
        assert part in printed
    assert "MISSING" not in printed
    assert not folder.results.exists()


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("model.path=no.sqm", ("MISSING model", "python -m backends.pack demo")),
        ("backends.native.command=[./nothing]", ("MISSING worker native", "make native")),
        ("data.root=/nowhere", ("MISSING data.root", "/nowhere", "data.root=")),
        ("results_root=/proc/none", ("MISSING results_root", "results_root=")),
    ],
)
def test_what_is_missing_is_named_with_what_mends_it(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], override: str, parts: tuple[str, ...]
) -> None:
    assert main(folder.overrides(override)) == 1
    printed = capsys.readouterr().out
    for part in (*parts, "cannot run yet"):
        assert part in printed


def test_a_missing_browser_or_compiler_does_not_keep_a_sweep_from_running(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert main(folder.overrides()) == 0
    printed = capsys.readouterr().out
    assert "note    compiler: a C++ compiler, cmake, ninja is missing" in printed
    assert "note    browser" in printed


def test_a_wrong_override_is_one_message(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(folder.overrides("workload=smok")) == 2
    assert capsys.readouterr().out.startswith("Error: workload=smok")
