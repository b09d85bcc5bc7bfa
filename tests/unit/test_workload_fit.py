"""Fitting workloads to traffic, from requests and from traces without text."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from harness.workload import WorkloadError, load
from harness.workload.__main__ import main
from harness.workload.assumed_text import AssumedText
from harness.workload.fit import Fit, Options, fit, write
from harness.workload.trace_csv import read_trace
from harness.workload.traffic import arrivals, quantiles
from tests.fakes.character_tokenizer import MODEL, CharacterTokenizer

HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def options(**changed: Any) -> Options:
    return Options(**{"name": "mine", "requests": 50, "max_tokens": 4096, "seed": 0, **changed})


def fitted(path: Path, **changed: Any) -> Fit:
    return fit([path], options(**changed), CharacterTokenizer(), MODEL)


def trace_file(folder: Path, rows: int = 400) -> Path:
    rng = random.Random(1)
    time, lines = 0.0, []
    for _ in range(rows):
        time += rng.expovariate(5.0)
        lines.append(f"{time:.6f},{rng.randint(300, 1500)},{rng.randint(1, 90)}\n")
    path = folder / "t.csv"
    path.write_text(HEAD + "".join(lines))
    return path


def test_a_trace_keeps_lengths_and_rate_and_says_that_text_is_assumed(tmp_path: Path) -> None:
    result = fitted(trace_file(tmp_path), requests=100)
    assert result.text_assumed
    assert (result.found.requests, result.kept.requests, result.too_long) == (400, 100, 0)
    for name in ("p25", "p50", "p75"):
        assert result.kept.prompt_tokens[name] == pytest.approx(
            result.found.prompt_tokens[name], rel=0.06
        )
    assert result.found.arrivals is not None
    assert result.kept.arrivals is not None
    assert result.found.arrivals.rate_per_s == pytest.approx(5.0, rel=0.2)
    assert result.kept.arrivals.rate_per_s == pytest.approx(5.0, rel=0.4)
    assert all(line["text_assumed"] for line in result.lines)
    times = [line["arrival_s"] for line in result.lines]
    assert times == sorted(times)
    assert times[0] == 0.0


def test_a_fitted_folder_is_a_workload(tmp_path: Path) -> None:
    result = fitted(trace_file(tmp_path))
    requests, config = write(result, options(), [tmp_path / "t.csv"], tmp_path / "out" / "mine")
    settings = yaml.safe_load(config.read_text())
    assert settings.pop("defaults") == ["prod", "_self_"]
    assert settings["fitted"]["sources"] == ["t.csv"]
    by_config = load(settings, CharacterTokenizer(), MODEL)
    by_path = load({"name": "mine", "path": str(requests)}, CharacterTokenizer(), MODEL)
    assert by_config.content_hash == by_path.content_hash
    for workload in (by_config, by_path):
        assert workload.source["text_assumed"] is True
        assert len(workload.prompts) == 50
    assert by_config.source["fitted"]["found"]["requests"] == 400
    lengths = quantiles([len(prompt.token_ids) for prompt in by_path.prompts])
    assert lengths == result.kept.prompt_tokens
    with pytest.raises(WorkloadError, match="exists already"):
        write(result, options(), [tmp_path / "t.csv"], tmp_path / "out" / "mine")


def test_the_whole_trace_keeps_its_own_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "2024-05-01 00:00:01.5000000,30,5\n2024-05-01T00:00:00+00:00,40,6\n")
    result = fitted(path, requests=0)
    assert [(line["arrival_s"], line["max_new_tokens"]) for line in result.lines] == [
        (0.0, 6), (1.5, 5)]  # fmt: skip


def test_too_long_requests_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD + "0,100,5\n1,4000,97\n2,4000,96\n")
    result = fitted(path, requests=0)
    assert (result.too_long, len(result.lines)) == (1, 2)
    with pytest.raises(WorkloadError, match="All requests are longer than 50 tokens"):
        fitted(path, max_tokens=50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"t\.csv:1: has no column TIMESTAMP"),
        ("TIMESTAMP,ContextTokens\n0,5\n", r"t\.csv:1: has no column GeneratedTokens"),
        (HEAD, r"t\.csv: has no requests"),
        (HEAD + "0,5,5\nsoon,5,5\n", r"t\.csv:3: TIMESTAMP must be .*'soon'"),
        (HEAD + "nan,5,5\n", r"t\.csv:2: TIMESTAMP must be"),
        (HEAD + "0,0,5\n", r"t\.csv:2: ContextTokens must be an integer of 1 or more, not '0'"),
        (HEAD + "0,5\n", r"t\.csv:2: GeneratedTokens must be an integer of 1 or more, not None"),
    ],
)
def test_problems_of_a_trace_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(WorkloadError, match=message):
        read_trace(path)


def test_a_trace_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(HEAD.encode() + b"0,5,\xff\n")
    with pytest.raises(WorkloadError, match=rf"t\.csv:2: is not UTF-8 at byte {len(HEAD) + 4}"):
        read_trace(path)


def test_requests_are_sampled_and_kept_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [{"id": f"r{i}", "prompt": "x" * (i + 1), "max_new_tokens": i + 1, "arrival_s": i / 2}
            for i in range(60)]  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = fitted(path, requests=20)
    assert not result.text_assumed
    assert len({line["id"] for line in result.lines}) == 20
    for line in result.lines:
        assert line["prompt"] == rows[int(line["id"][1:])]["prompt"]
        assert line["max_new_tokens"] == len(line["prompt"])
    assert result.found.arrivals is not None
    assert result.found.arrivals.gap_variation == pytest.approx(0.0, abs=1e-9)
    everything = fitted(path, requests=0)
    assert [line["arrival_s"] for line in everything.lines] == [i / 2 for i in range(60)]


def test_requests_without_times_and_outputs(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"prompt": "a"}\n{"token_ids": [5, 6]}\n')
    result = fitted(path)
    assert (result.found.output_tokens, result.found.arrivals) == (None, None)
    assert [sorted(line) for line in result.lines] == [
        ["category", "id", "prompt"], ["category", "id", "token_ids"]]  # fmt: skip


def test_files_of_one_kind_are_taken_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"prompt": "hello"}\n')
    both = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    result = fit(both, options(), CharacterTokenizer(), MODEL)
    assert [line["id"] for line in result.lines] == ["a-line-1", "b-line-1"]
    with pytest.raises(WorkloadError, match="not both at once"):
        fit([*both, trace_file(tmp_path)], options(), CharacterTokenizer(), MODEL)
    with pytest.raises(WorkloadError, match="the same id 'a-line-1'"):
        fit([both[0], both[0]], options(), CharacterTokenizer(), MODEL)


@given(st.integers(1, 900), st.integers(0, 3))
def test_assumed_text_has_the_length_asked(tokens: int, seed: int) -> None:
    passages = ["Two short sentences. Here is the other one.", "川の水は春に増え、夏に減る。"]
    writer = AssumedText(CharacterTokenizer(), passages, [("chat", "Hi there?")], seed)
    category, text, length = writer.write(tokens)
    template = len(CharacterTokenizer().apply_chat_template([{"role": "user", "content": ""}]))
    assert length == len(text) + template
    if tokens >= template + len("Hi there?"):
        assert category == "chat"
        assert text.endswith("Hi there?")
        longest_word = len("sentences. ") + len("\n\n")
        assert tokens - longest_word <= length <= tokens


def test_arrivals_tell_steady_from_bursty() -> None:
    rng = np.random.default_rng(0)
    steady = arrivals(list(np.cumsum(rng.exponential(0.2, 5000))))
    regular = arrivals([0.2 * i for i in range(5000)])
    rates = np.repeat([0.05, 1.0], 50)[np.arange(5000) % 100]
    bursty = arrivals(list(np.cumsum(rng.exponential(rates))))
    assert steady is not None
    assert regular is not None
    assert bursty is not None
    assert steady.gap_variation == pytest.approx(1.0, abs=0.1)
    assert steady.count_dispersion == pytest.approx(1.0, abs=0.2)
    assert "steady rate" in steady.words
    assert "regular" in regular.words
    assert bursty.count_dispersion is not None
    assert bursty.count_dispersion > 1.5
    assert "burstier" in bursty.words
    assert arrivals([1.0, 1.0, 1.0]) is None
    assert arrivals([1.0, 2.0]) is None


def test_command_line_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(trace_file(tmp_path))
    assert main(["fit", trace, "--name", "a/b"]) == 2
    assert "--name 'a/b' cannot name a folder" in capsys.readouterr().err
    assert main(["fit", trace, "--name", "a", "--model", str(tmp_path / "no.sqm")]) == 2
    assert "no.sqm does not exist" in capsys.readouterr().err
    with pytest.raises(SystemExit) as ended:
        main(["fit", "--help"])
    assert ended.value.code == 0
    assert "Writes OUT/NAME/requests.jsonl" in capsys.readouterr().out
