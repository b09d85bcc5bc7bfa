"""The tokenizer of a GGUF file, rebuilt from its metadata with the `tokenizers` library.

GGUF stores tokens, their types and merges, and names the pre-tokenizer (`tokenizer.ggml.pre`)
without describing it. The table below gives each name the meaning it has in llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors

from backends.pack.errors import CheckpointError

_CONTROL, _USER_DEFINED = 3, 4
_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# As Llama 3's, but each digit is a word.
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
_GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    # Each digit is a word of its own, before GPT-2's rule splits the rest.
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _GPT2]),
    **{
        name: pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(words), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        for name, words in (("llama-bpe", _LLAMA3_WORDS), ("qwen2", _QWEN2_WORDS))
    },
}
_END_OF_TURN = ("<|im_end|>", "<|endoftext|>", "<|end_of_text|>", "<|eot_id|>", "</s>")


def tokenizer_metadata(metadata: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The packed file's entries `tokenizer, chat_template, bos_token, eos_token, stop_ids`.

    `tokenizer` is null for a file without a byte-level BPE tokenizer: such a model takes token ids.
    Raises CheckpointError where the tokenizer's parts contradict each other or its pre-tokenizer is
    unknown.
    """
    tokens = metadata.get("tokenizer.ggml.tokens")
    entries: dict[str, Any] = {
        "tokenizer": None,
        "chat_template": metadata.get("tokenizer.chat_template"),
        "bos_token": _token(metadata, path, "bos"),
        "eos_token": _token(metadata, path, "eos"),
        "stop_ids": _stop_ids(metadata, tokens or []),
    }
    if tokens is not None and metadata.get("tokenizer.ggml.model") == "gpt2":
        entries["tokenizer"] = _build(metadata, path, tokens, entries["bos_token"]).to_str()
    return entries


def _build(
    metadata: Mapping[str, Any], path: Path, tokens: list[str], bos_token: str | None
) -> Tokenizer:
    kind = metadata.get("tokenizer.ggml.pre", "gpt-2")
    if kind not in _PRE_TOKENIZERS:
        raise CheckpointError(
            path,
            f"its pre-tokenizer {kind!r} is unsupported; supported are "
            f"{', '.join(_PRE_TOKENIZERS)}.",
        )
    types = metadata.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if len(types) != len(tokens):
        raise CheckpointError(path, f"it has {len(types)} token types for {len(tokens)} tokens.")
    merges = []
    for merge in metadata.get("tokenizer.ggml.merges", []):
        left, space, right = merge.partition(" ")
        if not space:
            raise CheckpointError(path, f"its merge {merge!r} is no pair of tokens.")
        merges.append((left, right))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise CheckpointError(path, "its tokenizer has a token twice.")
    try:
        # Llama 3 takes a whole word that is a token before it tries merges.
        model = models.BPE(vocabulary, merges, ignore_merges=kind == "llama-bpe")
    except Exception as error:  # tokenizers raises nothing narrower
        raise CheckpointError(path, f"its merges do not fit its tokens ({error}).") from error
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[kind]
    tokenizer.decoder = decoders.ByteLevel()
    for token, type_number in zip(tokens, types, strict=True):
        if type_number == _CONTROL:
            tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)])
        elif type_number == _USER_DEFINED:
            tokenizer.add_tokens([AddedToken(token, normalized=False)])
    adds_bos = metadata.get("tokenizer.ggml.add_bos_token", kind == "llama-bpe")
    if adds_bos and bos_token is not None:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[bos_token, "$A"], special_tokens=[(bos_token, vocabulary[bos_token])]
        )
    return tokenizer


def _token(metadata: Mapping[str, Any], path: Path, name: str) -> str | None:
    index = metadata.get(f"tokenizer.ggml.{name}_token_id")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if index is None or tokens is None:
        return None
    if not 0 <= index < len(tokens):
        raise CheckpointError(path, f"its {name}_token_id {index} is no token.")
    return str(tokens[index])


def _stop_ids(metadata: Mapping[str, Any], tokens: list[str]) -> list[int]:
    named = {
        metadata[key]
        for name in ("eos", "eot", "eom")
        if (key := f"tokenizer.ggml.{name}_token_id") in metadata
    }
    return sorted(named | {index for index, token in enumerate(tokens) if token in _END_OF_TURN})
