"""Every mistake that a user can make: one clear message that names the place, and nothing lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.command import BAD_CONFIGURATION, OK
from harness.sweep import main
from tests.integration.folder import SweepFolder

BASELINE = "{precision: fp16}"

MISTAKES: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown workload": ("workload=smok", ("workload=smok", "Did you mean smoke")),
    "unknown experiment": ("+experiment=qspek", ("experiment", "Did you mean qspec?")),
    "unknown method": ("method=three_weigh", ("Did you mean three_way?",)),
    "unknown backend": ("backend=[natiev]", ("natiev", "native")),
    "unknown device": ("device=cdua", ("device: there is no device 'cdua'", "Did you mean cuda")),
    "no device": ("device=null", ("device: there is no device 'None'", "cpu, cuda")),
    "a list of devices": ("device=[cuda]", ("device: there is no device", "Did you mean cuda")),
    "unknown model": ("model=smollm", ("smollm2-135m",)),
    "unknown precision": ("sweep.precision=[w4a61]", ("sweep.precision", "w4a16")),
    "unknown baseline": ("baseline=fp61", ("baseline", "fp16")),
    "unknown drafter": (
        f"methods=[{BASELINE},{{precision: w4a8, drafter: ngarm}}]",
        ("methods[1].drafter", "ngram"),
    ),
    "unknown drafter precision": (
        f"methods=[{BASELINE},{{precision: w4a8, drafter: {{kind: self, precision: w4a5}}}}]",
        ("methods[1].drafter.precision", "w4a4"),
    ),
    "unknown shape": (
        f"methods=[{BASELINE},{{precision: w4a8, drafter: ngram, shape: chian}}]",
        ("methods[1].shape", "chain"),
    ),
    "unknown backend of a method": (
        f"methods=[{BASELINE},{{precision: w4a8, backend: natve}}]",
        ("methods[1].backend", "native"),
    ),
    "unknown key of a method": (
        f"methods=[{BASELINE},{{precision: w4a8, draftr: ngram}}]",
        ("methods[1]", "drafter"),
    ),
    "unknown kv precision": (
        f"methods=[{BASELINE},{{precision: w4a8, kv_precision: kv8}}]",
        ("methods[1].kv_precision", "kv16"),
    ),
    "no baseline": ("methods=[{precision: w4a8}]", ("baseline", "fp16")),
    "two methods with one name": (
        f"methods=[{BASELINE},{{precision: w4a8, name: a}},{{precision: w4a4, name: a}}]",
        ("two methods are called 'a'",),
    ),
    "the same method twice": (
        f"methods=[{BASELINE},{{precision: w4a8}},{{precision: w4a8}}]",
        ("two methods are called 'w4a8'",),
    ),
    "unknown executor": ("schedule.executor=ray", ("schedule.executor", "ray", "local")),
    "draft length 0": ("sweep.draft_length=0", ("sweep.draft_length=0", "1 to 63")),
    "draft length negative": ("sweep.draft_length=[3,-2]", ("-2", "1 to 63")),
    "draft length absurd": ("sweep.draft_length=[64]", ("64", "1 to 63")),
    "draft length no integer": ("sweep.draft_length=[2.5]", ("2.5", "whole number")),
    "draft length no number": ("sweep.draft_length=[long]", ("long", "whole number")),
    "draft length true": ("sweep.draft_length=[true]", ("True", "whole number")),
    "empty axis": ("sweep.draft_length=[]", ("sweep.draft_length", "at least one")),
    "a value twice": ("sweep.draft_length=[3,3]", ("twice",)),
    "batch 0": ("sweep.batch_size=0", ("sweep.batch_size=0", "1 or more")),
    "batch negative": ("sweep.batch_size=[1,-1]", ("sweep.batch_size=-1",)),
    "batch absurd": ("sweep.batch_size=[1000000]", ("1000000", "at most")),
    "batch in a further product": (
        "sweep.also=[{batch_size: [0]}]",
        ("sweep.also[0].batch_size=0",),
    ),
    "unknown axis": ("+sweep.batchsize=[4]", ("batchsize", "batch_size")),
    "unknown axis in a further product": (
        "sweep.also=[{batchsize: [4]}]",
        ("sweep.also[0]", "batch_size"),
    ),
    "context of another kind": ("sweep.context_length=[long]", ("long", "natural")),
    "context of one token": ("sweep.context_length=[1]", ("sweep.context_length=1",)),
    "misspelt key": ("schedule.buget_s=3", ("schedule.buget_s", "schedule.budget_s")),
    "broken list": ("sweep.draft_length=[3", ("cannot be composed",)),
    "budget no number": ("schedule.budget_s=soon", ("schedule.budget_s=soon",)),
    "budget NaN": ("schedule.budget_s=nan", ("schedule.budget_s=nan",)),
    "cost NaN": ("cost.device_price_per_hour=nan", ("cost.device_price_per_hour",)),
    "cost negative": ("cost.device_price_per_hour=-1", ("cost.device_price_per_hour",)),
    "level out of range": ("stats.level=1.5", ("stats.level",)),
    "level no number": ("stats.level=high", ("stats",)),
    "name with a slash": ("name=a/b", ("name='a/b'",)),
    "model missing": ("model.path=no.sqm", ("no.sqm", "python -m backends.pack demo")),
    "worker missing": ("backends.native.command=[./nothing]", ("./nothing", "make native")),
    "worker that says nothing": (
        "backends.native.command=['true']",
        ("backends.native", "hello"),
    ),
    "worker on a host without a GPU": (
        """backends.native.command=[sh,-c,'echo "No GPU can be used." >&2; exit 2']""",
        ("It said: No GPU can be used.",),
    ),
    "command as text": ("backends.native.command=worker", ("backends.native.command", "list")),
    "workload missing": ("workload.path=none.jsonl", ("none.jsonl",)),
    "no value": ("workload.path=???", ("workload.path",)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_gets_one_message_that_names_the_place(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], mistake: str
) -> None:
    word, parts = MISTAKES[mistake]
    assert main(folder.overrides(word)) == BAD_CONFIGURATION
    printed = capsys.readouterr()
    assert printed.err.startswith("Error: ")
    assert "Traceback" not in printed.err
    for part in parts:
        assert part in printed.err
    assert not folder.records()
    assert not (folder.results / "plan.json").exists()


def test_a_mistake_leaves_earlier_results_alone(folder: SweepFolder) -> None:
    assert main(folder.overrides()) == OK
    before = folder.finished()
    for word in ("sweep.draft_length=0", "cost.device_price_per_hour=nan", "model.path=no.sqm"):
        assert main(folder.overrides(word)) == BAD_CONFIGURATION
    assert folder.finished() == before
    assert [path.name for path in folder.results.parent.iterdir() if path.is_dir()] == ["t"]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "safetensors"),
        (b"not a model at all, but long enough", "safetensors"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00{", "cut off"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", "__metadata__"),
    ],
)
def test_a_damaged_model_file_is_named(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], content: bytes, part: str
) -> None:
    (folder.path / "fake.sqm").write_bytes(content)
    assert main(folder.overrides()) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "fake.sqm" in message
    assert part in message


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("{broken", "prompts.jsonl:2"),
        (json.dumps({"prompt": ""}), "prompts.jsonl:2"),
        (json.dumps({"token_ids": [1] * 600}), "prompts.jsonl:2"),
    ],
)
def test_a_bad_line_of_a_workload_is_named(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], line: str, part: str
) -> None:
    good = json.dumps({"token_ids": [1, 2, 3]})
    (folder.path / "prompts.jsonl").write_text(f"{good}\n{line}\n", encoding="utf-8")
    assert main(folder.overrides()) == BAD_CONFIGURATION
    assert part in capsys.readouterr().err


def test_a_results_folder_that_cannot_be_written_is_named(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    # A file in the folder's place refuses everyone, also the superuser.
    blocked = folder.path / "blocked"
    blocked.write_text("", encoding="utf-8")
    assert main(folder.overrides(f"results_root={blocked}")) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert str(blocked) in message
    assert "results_root=" in message


def test_a_batch_beyond_the_machines_memory_is_refused_at_once(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.environment.memory_bytes", lambda: 1 << 16)
    assert main(folder.overrides("sweep.batch_size=[64]")) == BAD_CONFIGURATION
    message = capsys.readouterr().err
    assert "sweep.batch_size=64" in message
    assert "smaller batch" in message


def test_dry_run_prints_groups_cells_and_time_and_measures_nothing(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*folder.overrides("sweep.also=[{batch_size: [4]}]"), "--dry-run"]) == OK
    printed = capsys.readouterr().out
    assert "b1.natural" in printed
    assert "b4.natural" in printed
    assert "w4a8+ngram-chain3" in printed
    assert "quantized drafter" in printed
    assert "2 groups, 16 cells, at least 6 blocks each: about" in printed
    assert not folder.requests()
    assert not folder.results.exists()


def test_dry_run_does_without_a_model_and_says_so(
    folder: SweepFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder.path / "fake.sqm").unlink()
    assert main([*folder.overrides(), "--dry-run"]) == OK
    assert "does not exist" in capsys.readouterr().out


def test_help_shows_the_groups_and_the_exit_statuses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    printed = capsys.readouterr().out
    assert ended.value.code in (None, 0)
    for part in ("workload: ", "schedule:", "Exit status", "results/<name>/"):
        assert part in printed


def test_the_default_plan_covers_what_the_three_way_question_needs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["workload=prod", f"data.root={tmp_path}", "--dry-run"]) == OK
    lines = capsys.readouterr().out.splitlines()
    groups = [line for line in lines if "batch size" in line]
    assert [line.split(":")[0].split(".", 3)[3] for line in groups] == [
        "b1.natural", "b4.natural", "b1.c1024",
    ]  # fmt: skip
    cells = [line.split()[0] for line in lines if line.startswith("  ")]
    plain = ["fp16", "fp16", "w4a16", "w4a8", "w4a4"]
    drafted = [
        ("fp16", "self-w4a8"), ("fp16", "self-w4a4"), ("fp16", "ngram"),
        ("w4a16", "self-w4a4"), ("w4a16", "self-w4a8"), ("w4a16", "ngram"), ("w4a8", "ngram"),
    ]  # fmt: skip
    one = [f"{p}+{d}-chain3" for p, d in drafted]
    many = [f"{p}+{d}-chain{gamma}" for p, d in drafted for gamma in (2, 3, 5)]
    assert sorted(cells) == sorted([*plain, *many, *plain, *one, *plain, *one])
