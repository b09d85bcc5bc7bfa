"""Workload files and settings: what is read, and what each error says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.workload import Workload, WorkloadError, load
from harness.workload.errors import Problems
from harness.workload.request_file import json_lines
from tests.fakes.character_tokenizer import ANSWER, END, MODEL, START, USER, CharacterTokenizer

GOOD = '{"id": "good", "prompt": "hello"}'


def load_text(folder: Path, text: str | bytes, **config: Any) -> Workload:
    path = folder / "w.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    settings = {"name": "t", "path": "w.jsonl", "root": str(folder), **config}
    return load(settings, CharacterTokenizer(), MODEL)


def test_all_forms_of_a_line(tmp_path: Path) -> None:
    encode = CharacterTokenizer().encode
    workload = load_text(tmp_path, """\ufeff{"prompt": "a"}
{"id": "chat", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}

{"token_ids": [5, 6], "max_new_tokens": 9, "arrival_s": 1, "category": "c", "language": "ja"}
""", stop={"model": True, "ids": [77]})  # fmt: skip
    first, chat, ids = workload.prompts
    assert first.token_ids == (START, USER, *encode("user\na"), END, ANSWER)
    assert (first.id, first.category, first.max_new_tokens, first.arrival_s) == (
        "line-1", "all", 64, None)  # fmt: skip
    assert chat.token_ids == (
        START, USER, *encode("system\ns"), END, USER, *encode("user\nu"), END, ANSWER)  # fmt: skip
    assert chat.token_ids[chat.fill_at] == encode("u")[0]
    assert ids.token_ids == (5, 6)
    assert (ids.id, ids.category, ids.max_new_tokens, ids.arrival_s, ids.fill_at) == (
        "line-4", "c", 9, 1.0, 0)  # fmt: skip
    assert workload.stop_ids == (END, 77)
    assert workload.source["path"] == "w.jsonl"
    assert workload.source["count"] == 3
    assert workload.source["categories"] == {"all": 2, "c": 1}
    assert workload.source["text_assumed"] is False


def test_raw_prompts_have_no_template(tmp_path: Path) -> None:
    (prompt,) = load_text(tmp_path, GOOD, prompt_is="raw").prompts
    assert prompt.token_ids == tuple(CharacterTokenizer().encode("hello"))
    assert prompt.fill_at == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"prompt": "a"', r"is not valid JSON at column 15"),
        ("[1]", r"holds a list; each line must hold one JSON object"),
        ("[" * 100_000, r"is not valid JSON"),
        ('{"prompt": "a", "catgory": "b"}', r"unknown key 'catgory'\. Did you mean category\?"),
        ('{"id": "x"}', r"exactly one of prompt, messages, token_ids; it has none of them"),
        ('{"prompt": "a", "token_ids": [1]}', r"exactly one of .* it has prompt and token_ids"),
        ('{"prompt": ""}', r"prompt is empty"),
        ('{"prompt": " \\n"}', r"prompt is empty"),
        ('{"prompt": null}', r"prompt must be a text, not null"),
        ('{"prompt": 5}', r"prompt must be a text, not the number 5"),
        ('{"prompt": "\\ud800"}', r"half of a surrogate pair"),
        ('{"messages": []}', r"messages must be a list of at least one"),
        ('{"messages": "a"}', r"messages must be a list .* not the text 'a'"),
        ('{"messages": ["a"]}', r"messages\[0\] must be an object with role and content"),
        ('{"messages": [{"role": "usr", "content": "a"}]}', r"role 'usr'\. Did you mean user"),
        ('{"messages": [{"role": "user"}]}', r"messages\[0\]\.content must be a text, not null"),
        ('{"messages": [{"role": "user", "content": ""}]}', r"messages\[0\]\.content is empty"),
        ('{"messages": [{"role": "user", "content": "a", "nme": 1}]}', r"unknown key 'nme'"),
        ('{"messages": [{"role": "system", "content": "a"}]}', r"has no user turn"),
        (
            '{"messages": [{"role": "user", "content": "a"}, '
            '{"role": "assistant", "content": "b"}]}',
            r"last of messages must be a user or tool turn, not 'assistant'",
        ),
        (
            '{"id": "t", "messages": [{"role": "user", "content": "a"}, '
            '{"role": "tool", "content": "b"}]}',
            r"'t' cannot be tokenized: the template knows no tools",
        ),
        ('{"token_ids": []}', r"token_ids is empty"),
        ('{"token_ids": 5}', r"token_ids must be a list of integers, not the number 5"),
        ('{"token_ids": [1, 2.5]}', r"token_ids\[1\] must be an integer, not the number 2\.5"),
        ('{"token_ids": [true]}', r"token_ids\[0\] must be an integer, not true"),
        ('{"id": "v", "token_ids": [1, 70000]}', r"token_ids\[1\] of 'v' is 70000, outside"),
        ('{"token_ids": [-1]}', r"is -1, outside the model's vocabulary of 70000 tokens"),
        ('{"prompt": "a", "max_new_tokens": 0}', r"max_new_tokens must be at least 1, not 0"),
        ('{"prompt": "a", "max_new_tokens": -3}', r"max_new_tokens must be at least 1, not -3"),
        ('{"prompt": "a", "max_new_tokens": "9"}', r"max_new_tokens must be an integer"),
        ('{"prompt": "a", "arrival_s": -0.5}', r"arrival_s must be 0 or more seconds"),
        ('{"prompt": "a", "arrival_s": NaN}', r"arrival_s must be 0 or more seconds"),
        ('{"prompt": "a", "arrival_s": Infinity}', r"arrival_s must be 0 or more seconds"),
        ('{"prompt": "a", "arrival_s": 1' + "0" * 400 + "}", r"arrival_s must be 0 or more"),
        ('{"prompt": "a", "arrival_s": "now"}', r"arrival_s must be a number of seconds"),
        ('{"prompt": "a", "id": 7}', r"id must be a text that is not empty, not the number 7"),
        ('{"prompt": "a", "category": ""}', r"category must be a text that is not empty"),
        ('{"prompt": "a", "text_assumed": 1}', r"text_assumed must be true or false"),
        ('{"prompt": "a", "id": "good"}', r"repeats the id 'good' of line 1"),
        (
            '{"id": "long", "token_ids": ' + json.dumps([5] * 4090) + "}",
            r"'long' has 4090 tokens and asks for 64 new ones, 4154 in all; the model's context "
            r"is 4096",
        ),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        load_text(tmp_path, f"{GOOD}\n\n{line}\n")
    assert str(caught.value).startswith("w.jsonl:3: ")


def test_a_line_that_is_not_utf8_is_named_with_its_byte(tmp_path: Path) -> None:
    data = GOOD.encode() + b'\n{"prompt": "caf\xe9"}\n'
    at = data.index(b"\xe9")
    with pytest.raises(WorkloadError, match=rf"w\.jsonl:2: is not UTF-8 at byte {at} .*0xe9"):
        load_text(tmp_path, data)


def test_all_problems_are_listed_in_order(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_text(tmp_path, '{"prompt": ""}\n' + GOOD + '\n{"max_new_tokens": 0, "x": 1}\nnull')
    lines = str(caught.value).splitlines()
    assert lines[0] == "w.jsonl has 5 problems:"
    assert [line.split(": ")[0] for line in lines[1:]] == [
        "w.jsonl:1", "w.jsonl:3", "w.jsonl:3", "w.jsonl:3", "w.jsonl:4"]  # fmt: skip


def test_at_most_twenty_problems_are_shown(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        load_text(tmp_path, "{}\n" * 25)
    lines = str(caught.value).splitlines()
    assert len(lines) == 22
    assert lines[-1] == "... and 5 more problems in w.jsonl."


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(WorkloadError, match=r"w\.jsonl: is empty"):
        load_text(tmp_path, text)


def test_a_missing_file_or_a_folder_is_named(tmp_path: Path) -> None:
    for path, message in [("absent.jsonl", "does not exist"), (".", "cannot be read")]:
        with pytest.raises(WorkloadError, match=message):
            load_text(tmp_path, GOOD, path=path)


def test_pool_problems_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "a"}\n{"txt": "b"}\n')
    with pytest.raises(WorkloadError, match=r"p\.jsonl:2: has the unknown key 'txt'"):
        load_text(tmp_path, GOOD, pool_path="p.jsonl")
    with pytest.raises(WorkloadError, match=r"none\.jsonl does not exist"):
        load_text(tmp_path, GOOD, pool_path="none.jsonl")


@given(st.binary(max_size=300))
def test_no_bytes_make_the_reader_fail(data: bytes) -> None:
    problems = Problems("w")
    read = list(json_lines(data, problems))
    assert len(read) + len(problems) <= data.count(b"\n") + 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"max_new_token": 5}, r"unknown key 'max_new_token'\. Did you mean max_new_tokens\?"),
        ({"stop": {"modell": True}}, r"workload\.stop has the unknown key 'modell'"),
        ({"stop": [2]}, r"workload\.stop must have the keys"),
        ({"stop": {"model": "yes"}}, r"workload\.stop\.model must be true or false"),
        ({"stop": {"ids": "2"}}, r"workload\.stop\.ids must be a list of token ids"),
        ({"stop": {"ids": [70000]}}, r"workload\.stop\.ids has a token outside"),
        ({"max_new_tokens": 0}, r"max_new_tokens must be an integer from 1 to"),
        ({"max_new_tokens": True}, r"max_new_tokens must be an integer from 1 to"),
        ({"name": "a/b"}, r"workload\.name='a/b' cannot name a results folder"),
        ({"path": "???"}, r"workload\.path is not set\. Give workload\.path="),
        ({"name": None}, r"workload\.name is not set"),
        ({"path": 5}, r"workload\.path must be a text"),
        ({"format": "gsm"}, r"workload\.format='gsm' is unknown\. Did you mean gsm8k"),
        ({"prompt_is": "chat"}, r"workload\.prompt_is='chat' is unknown"),
        ({"text_assumed": "no"}, r"text_assumed must be auto, true or false"),
        ({"fitted": 3}, r"workload\.fitted must be a mapping or null"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError, match=message):
        load_text(tmp_path, GOOD, **config)


def test_marked_text_stays_assumed(tmp_path: Path) -> None:
    marked = GOOD + '\n{"prompt": "b", "text_assumed": true}'
    assert load_text(tmp_path, marked).source["text_assumed"] is True
    assert load_text(tmp_path, GOOD, text_assumed=True).source["text_assumed"] is True
    with pytest.raises(WorkloadError, match="text_assumed=false contradicts"):
        load_text(tmp_path, marked, text_assumed=False)


def test_content_hash_covers_what_decides_the_tokens(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"text": "pool"}')
    (tmp_path / "q.jsonl").write_text('{"text": "looop"}')
    pool = {"pool_path": "p.jsonl"}
    base = load_text(tmp_path, GOOD, **pool).content_hash
    assert load_text(tmp_path, GOOD, **pool).content_hash == base
    assert load_text(tmp_path, GOOD, name="other", **pool).content_hash == base
    changed = [
        load_text(tmp_path, GOOD.replace("hello", "hallo"), **pool),
        load_text(tmp_path, GOOD.replace("good", "well"), **pool),
        load_text(tmp_path, GOOD.replace("}", ', "max_new_tokens": 9}'), **pool),
        load_text(tmp_path, GOOD.replace("}", ', "arrival_s": 9}'), **pool),
        load_text(tmp_path, GOOD, max_new_tokens=65, **pool),
        load_text(tmp_path, GOOD, prompt_is="raw", **pool),
        load_text(tmp_path, GOOD, stop={"ids": [9]}, **pool),
        load_text(tmp_path, GOOD, pool_path="q.jsonl"),
        load_text(tmp_path, GOOD),
    ]
    assert len({base, *(workload.content_hash for workload in changed)}) == len(changed) + 1


def test_public_data_sets(tmp_path: Path) -> None:
    (tmp_path / "gsm8k_test.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    (tmp_path / "spec_bench.jsonl").write_text(
        '{"question_id": 1, "category": "qa", "turns": ["First?", "Second?"]}\n'
    )
    content = {"gsm8k": "1+1?", "spec_bench": "First?"}
    for kind, path in [("gsm8k", "gsm8k_test.jsonl"), ("spec_bench", "spec_bench.jsonl")]:
        (prompt,) = load_text(tmp_path, GOOD, format=kind, path=path).prompts
        text = CharacterTokenizer().encode(f"user\n{content[kind]}")
        assert prompt.token_ids == (START, USER, *text, END, ANSWER)
        if kind == "gsm8k":
            assert prompt.answer == "#### 2"
            (tmp_path / path).write_text('{"question": "1+1?", "answer": "two"}\n')
            with pytest.raises(WorkloadError, match=rf"{path}:1: has an answer without a final"):
                load_text(tmp_path, GOOD, format=kind, path=path)
        (tmp_path / path).write_text("{}\n")
        with pytest.raises(WorkloadError, match=rf"{path}:1: has no (question|turns)"):
            load_text(tmp_path, GOOD, format=kind, path=path)
        (tmp_path / path).unlink()
        with pytest.raises(WorkloadError, match=rf"{path}, which does not exist\. Give data\.root"):
            load_text(tmp_path, GOOD, format=kind, path=path)
