"""The tokenizer of the demo model against two other programs' ids for the same file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.pack.gguf_import import pack_gguf
from backends.pack.packed import PackedFile
from backends.tokenizer import Tokenizer, TokenizerError
from tests.data import make_tokenizer_fixture
from tests.fakes.tiny_llama import write_gguf

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "smollm2-135m-instruct.sqm"
EXPECTED = json.loads((ROOT / "tests" / "data" / "tokenizer_expected.json").read_text())
CASES = EXPECTED["cases"]

# transformers gives every GGUF file of this kind GPT-2's splitting rule, whatever pre-tokenizer the
# file names. With the file's own (each digit a word) a run of white space before a digit is one
# token; without it, its last character goes to the digit.
RUN_BEFORE_DIGIT = re.compile(r"\s\s\d")


@pytest.fixture(scope="module")
def demo() -> Tokenizer:
    if not DEMO.exists():
        pytest.skip("the demo model is not packed; run 'python -m backends.pack demo'")
    return Tokenizer.from_packed(DEMO)


def test_the_fixture_holds_the_strings_of_its_maker() -> None:
    assert [case["text"] for case in CASES] == make_tokenizer_fixture.TEXTS
    assert len({case["text"] for case in CASES}) == len(CASES) >= 200


def test_ids_are_llama_cpps_for_every_string(demo: Tokenizer) -> None:
    differing = [c["text"] for c in CASES if demo.encode(c["text"]) != c["llama_cpp"]]
    assert differing == []


def test_ids_are_transformers_except_where_it_ignores_the_pre_tokenizer(demo: Tokenizer) -> None:
    differing = [c["text"] for c in CASES if demo.encode(c["text"]) != c["transformers"]]
    assert differing == [c["text"] for c in CASES if RUN_BEFORE_DIGIT.search(c["text"])]
    assert len(differing) < 10


@pytest.mark.backend
def test_ids_are_those_of_the_transformers_installed_here(demo: Tokenizer) -> None:
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    gguf = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    theirs = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    for case in CASES:
        if not RUN_BEFORE_DIGIT.search(case["text"]):
            assert demo.encode(case["text"]) == theirs.encode(case["text"]), case["text"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["text"])[:30])
def test_decoding_gives_the_text_back(demo: Tokenizer, case: dict[str, Any]) -> None:
    assert demo.decode(demo.encode(case["text"])) == case["text"]


# Six control characters are not in the model's vocabulary.
UNKNOWN = "\x04\x06\x13\x14\x16\x1d"


# Nor are the first bytes of the characters from U+40000, none of which is assigned.
KNOWN = st.characters(exclude_characters=UNKNOWN, codec="utf-8", max_codepoint=0x3FFFF)


@given(st.text(KNOWN, max_size=40))
def test_any_text_comes_back(demo: Tokenizer, text: str) -> None:
    assert demo.decode(demo.encode(text)) == text


def test_characters_that_the_model_does_not_know_are_dropped(demo: Tokenizer) -> None:
    # llama.cpp drops them as well; transformers puts <|endoftext|>, which would end a text.
    assert demo.encode(f"a{UNKNOWN}b") == [81, 82]


def test_digits_stand_alone(demo: Tokenizer) -> None:
    assert len(demo.encode("1234567890")) == 10


def test_special_tokens_of_the_demo(demo: Tokenizer) -> None:
    assert demo.vocab_size == 49152
    assert demo.stop_ids == [0, 2]
    assert (demo.bos_token, demo.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert demo.encode("<|im_end|>") == [2]
    assert demo.decode([1, 28120, 2], skip_special_tokens=True) == demo.decode([28120])


def test_chat_is_the_templates_text_with_one_beginning(demo: Tokenizer) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert demo.render_chat(messages) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = demo.apply_chat_template(messages)
    assert ids[0] == 1
    assert ids[1] != 1
    assert ids.count(1) == 3
    without = demo.apply_chat_template(messages, add_generation_prompt=False)
    assert ids[: len(without)] == without


def tiny(tmp_path: Path, **metadata: Any) -> Tokenizer:
    keys = {f"tokenizer.{key.replace('__', '.')}": value for key, value in metadata.items()}
    write_gguf(tmp_path / "m.gguf", metadata=keys)
    pack_gguf(tmp_path / "m.gguf", tmp_path / "m.sqm")
    return Tokenizer(PackedFile(tmp_path / "m.sqm").metadata)


def test_a_beginning_token_is_added_once(tmp_path: Path) -> None:
    template = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"
    made = tiny(tmp_path, ggml__add_bos_token=True, chat_template=template)
    assert made.encode("a")[0] == 1
    assert made.encode("a", add_bos=False)[0] != 1
    assert made.apply_chat_template([{"role": "user", "content": "a"}]).count(1) == 1


def test_no_beginning_token_where_the_model_has_none(tmp_path: Path) -> None:
    assert 1 not in tiny(tmp_path).encode("a")


@pytest.mark.parametrize("kind", ["gpt-2", "smollm", "llama-bpe"])
def test_known_pre_tokenizers_lose_nothing(tmp_path: Path, kind: str) -> None:
    made = tiny(tmp_path, ggml__pre=kind)
    text = "It's 1234  5 lines\n\n  of é日本 <|im_end|> text!"
    ids = made.encode(text, add_bos=False)
    assert made.decode(ids) == text
    assert 2 in ids


def test_bytes_that_are_no_character_are_replaced(tmp_path: Path) -> None:
    made = tiny(tmp_path)
    assert made.decode(made.encode("é")[:1]) == "\ufffd"


def test_a_template_that_refuses(tmp_path: Path) -> None:
    made = tiny(tmp_path, chat_template="{{ raise_exception('no system role') }}")
    with pytest.raises(TokenizerError, match="refused the messages: no system role"):
        made.render_chat([{"role": "user", "content": "a"}])


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__ }}",
        "{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
    ],
)
def test_a_template_reaches_nothing_but_text(tmp_path: Path, template: str) -> None:
    with pytest.raises(TokenizerError, match="unsafe"):
        tiny(tmp_path, chat_template=template).render_chat([{"role": "user", "content": "a"}])


def test_messages_without_text_are_named(tmp_path: Path) -> None:
    made = tiny(tmp_path, chat_template="x")
    with pytest.raises(TokenizerError, match="Message 1 has no text under 'content'"):
        made.render_chat([{"role": "user", "content": "a"}, {"role": "user"}])
    with pytest.raises(TokenizerError, match="no chat template"):
        tiny(tmp_path).render_chat([])


def test_a_model_without_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(
        TokenizerError, match=r"'tiny' has no tokenizer\. Give prompts as token_ids"
    ):
        tiny(tmp_path, ggml__model="llama")
