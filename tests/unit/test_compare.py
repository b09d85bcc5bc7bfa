"""`python -m harness.compare A B`: words, exit status, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.compare import compare, main
from harness.stats import Settings
from tests.fakes.folder import SMALL, Folder
from tests.fakes.records import FakeWorld

METHOD = "w4a16"


def folder(path: Path, *, seed: int = 0, noise: float = 0.003, **changes: Any) -> Path:
    world = FakeWorld(groups=(SMALL,), blocks=8, seed=seed, trial_noise=noise, drift=0.0,
                      **changes)  # fmt: skip
    return Folder(world).write(path)


def words(a: Path, b: Path) -> dict[str, str]:
    return {change.method_id: change.word for change in compare(a, b, Settings())}


def plain(found: dict[str, str]) -> dict[str, str]:
    return {name: word for name, word in found.items() if "+" not in name}


def test_the_same_speed_is_the_same(tmp_path: Path) -> None:
    found = words(folder(tmp_path / "a"), folder(tmp_path / "b", seed=1))
    assert plain(found) == dict.fromkeys(("fp16", "w4a16", "w4a8", "w4a4"), "SAME")
    assert "SLOWER" not in found.values()


def test_a_change_is_found_in_its_method_and_direction(tmp_path: Path) -> None:
    a = folder(tmp_path / "a")
    slow = folder(tmp_path / "slow", seed=1, speed={METHOD: 1.1})
    fast = folder(tmp_path / "fast", seed=2, speed={METHOD: 0.9})
    assert plain(words(a, slow))[METHOD] == "SLOWER"
    assert plain(words(a, fast))[METHOD] == "FASTER"
    assert plain(words(a, slow))["w4a8"] == "SAME"
    ratio = next(c.ratio for c in compare(a, slow, Settings()) if c.method_id == METHOD)
    assert ratio.ci_low < 1 / 1.1 < ratio.ci_high


def test_noise_is_ambiguous(tmp_path: Path) -> None:
    found = words(folder(tmp_path / "a", noise=0.1), folder(tmp_path / "b", seed=1, noise=0.1))
    assert plain(found)[METHOD] == "AMBIGUOUS"


def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, same = folder(tmp_path / "a"), folder(tmp_path / "b", seed=1)
    slow = folder(tmp_path / "slow", seed=1, speed={METHOD: 1.1})
    assert main([str(a), str(same)]) == 0
    assert main([str(a), str(slow)]) == 1
    assert "SLOWER" in capsys.readouterr().out
    assert main([str(slow), str(a)]) == 0  # faster is no regression
    assert main([str(a), str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "value", "code"),
    [
        ("device", {"kind": "cpu", "name": "other"}, "device_differs"),
        ("model", {"name": "other"}, "model_differs"),
        ("workload", {"content_hash": "other"}, "workload_differs"),
    ],
)
def test_unlike_folders_are_refused_with_a_code(
    part: str, value: Any, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = folder(tmp_path / "a")
    other = Folder(FakeWorld(groups=(SMALL,), blocks=8, seed=1, trial_noise=0.003, drift=0.0))
    other.environment[part] = value
    b = other.write(tmp_path / "b")
    assert main([str(a), str(b)]) == 2
    assert code in capsys.readouterr().err
    assert main([str(a), str(b), "--force"]) == 0


def test_other_prompts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def rename(record: dict[str, Any]) -> None:
        record["prompt_ids"] = [f"x{name}" for name in record["prompt_ids"]]
        for request, name in zip(record["requests"], record["prompt_ids"], strict=True):
            request["id"] = name

    a = folder(tmp_path / "a")
    world = FakeWorld(groups=(SMALL,), blocks=8, seed=1, drift=0.0)
    b = Folder(world, record=rename).write(tmp_path / "b")
    assert main([str(a), str(b)]) == 2
    assert "prompts_differ" in capsys.readouterr().err
    assert main([str(a), str(b), "--force"]) in (0, 1)


def test_few_blocks_decide_nothing(tmp_path: Path) -> None:
    world = FakeWorld(groups=(SMALL,), blocks=4, drift=0.0, trial_noise=0.0, speed={METHOD: 2.0})
    b = Folder(world).write(tmp_path / "b")
    assert set(words(folder(tmp_path / "a"), b).values()) == {"AMBIGUOUS"}


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "Writes nothing" in capsys.readouterr().out
