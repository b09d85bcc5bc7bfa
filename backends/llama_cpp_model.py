"""A GGUF file in llama.cpp, through llama-cpp-python's C interface; a sequence for each slot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from backends import llama_cpp_log
from backends.protocol import MAX_DRAFTED, RequestError

_CHUNK = 512
"""Rows that llama.cpp computes at once, its own default."""


class Settings(NamedTuple):
    """llama.cpp's documented settings that change its speed and not its results' meaning.

    `unified_cache`: all slots share one buffer of the KV cache, instead of one each.
    """

    threads: int
    flash_attention: bool
    repack: bool
    unified_cache: bool


class LlamaCppModel:
    """One model and context; a slot is a llama.cpp sequence (decoding.Stepper)."""

    def __init__(self, path: Path, settings: Settings, *, max_context: int, max_batch: int) -> None:
        """Load `path` for `max_batch` slots of `max_context` tokens. Raises RequestError."""
        llama_cpp_log.begin()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = settings.repack
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            message = f"{path}: llama.cpp could not load it." + llama_cpp_log.complaints()
            raise RequestError("model", message)
        most_rows = max(_CHUNK, max_batch * (1 + MAX_DRAFTED))
        self._context = llama_cpp.llama_init_from_model(
            self._model, _context_params(settings, max_context * max_batch, max_batch, most_rows)
        )
        if not self._context:
            llama_cpp.llama_model_free(self._model)
            message = (
                f"llama.cpp could not make a context of {max_batch} x {max_context} tokens."
                + llama_cpp_log.complaints()
            )
            raise RequestError("out_of_memory", message)
        vocabulary = llama_cpp.llama_model_get_vocab(self._model)
        self.vocabulary = int(llama_cpp.llama_vocab_n_tokens(vocabulary))
        self.bytes = int(llama_cpp.llama_model_size(self._model))
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._lengths = [0] * max_batch
        self._batch = llama_cpp.llama_batch_init(most_rows, 0, 1)

    def close(self) -> None:
        """Give the memory back."""
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._context)
        llama_cpp.llama_model_free(self._model)

    def prefill(self, slot: int, prompt: Sequence[int]) -> int:
        """See decoding.Stepper."""
        self.truncate(slot, 0)
        for start in range(0, len(prompt), _CHUNK):
            chunk = prompt[start : start + _CHUNK]
            last = start + len(chunk) == len(prompt)
            self._decode([slot], [chunk], logits="last" if last else "none")
        return int(self._logits(len(chunk) - 1).argmax())

    def step(self, slots: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """See decoding.Stepper."""
        logits = iter(self.logits(slots, rows))
        return [[int(next(logits).argmax()) for _ in row] for row in rows]

    def truncate(self, slot: int, length: int) -> None:
        """See decoding.Stepper."""
        llama_cpp.llama_memory_seq_rm(self._memory, slot, length, -1)
        self._lengths[slot] = length

    def logits(
        self, slots: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        """Logits [vocabulary] after each token of `rows`, valid until the next call."""
        count = self._decode(slots, rows, logits="all")
        return [self._logits(index) for index in range(count)]

    def _decode(self, slots: Sequence[int], rows: Sequence[Sequence[int]], *, logits: str) -> int:
        """Append `rows` to the caches; return how many there were. Raises RequestError."""
        batch, count = self._batch, 0
        for slot, row in zip(slots, rows, strict=True):
            for offset, token in enumerate(row):
                batch.token[count] = token
                batch.pos[count] = self._lengths[slot] + offset
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = slot
                batch.logits[count] = logits == "all"
                count += 1
        if logits == "last":
            batch.logits[count - 1] = True
        batch.n_tokens = count
        llama_cpp_log.begin()
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            message = f"llama_decode failed with status {status}." + llama_cpp_log.complaints()
            raise RequestError("device", message)
        for slot, row in zip(slots, rows, strict=True):
            self._lengths[slot] += len(row)
        return count

    def _logits(self, index: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary,))


def _context_params(settings: Settings, tokens: int, sequences: int, rows: int) -> Any:
    """llama.cpp's parameters for a KV cache of `tokens` and calls of at most `rows`."""
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = tokens
    params.n_batch = rows
    params.n_ubatch = _CHUNK
    params.n_seq_max = sequences
    params.n_threads = params.n_threads_batch = settings.threads
    params.kv_unified = settings.unified_cache
    params.flash_attn_type = (
        llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if settings.flash_attention
        else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    )
    return params
