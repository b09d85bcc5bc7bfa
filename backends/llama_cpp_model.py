"""A GGUF file in llama.cpp, through llama-cpp-python's C interface, with a sequence for each slot."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from backends.protocol import RequestError

WEIGHT_FORMATS = {
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
}
PRECISION_OF = {"f16": "fp16", "q8_0": "w8a8", "q4_0": "w4a8", "q4_1": "w4a8"}
"""What llama.cpp computes on a CPU: its integer formats multiply by 8-bit activations."""

_CHUNK = 512


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _ignore_log(_level: int, _text: bytes, _data: object) -> None:
    """llama.cpp logs every tensor; the harness keeps only the end of a worker's log."""


def make_gguf(source: Path, weight_format: str, folder: Path) -> Path:
    """`source` in another weight format, made by llama.cpp's own quantizer and kept in `folder`.

    The embedding, which is the demo model's head as well, stays 8-bit in the 4-bit formats, so that
    each engine reads the same bytes. Raises RequestError where the quantizer fails; the file appears
    under its name only when it is whole.
    """
    target = folder / f"{source.stem.split('.')[0]}.{weight_format}.gguf"
    if target.exists() and target.stat().st_mtime >= source.stat().st_mtime:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = WEIGHT_FORMATS[weight_format]
    params.allow_requantize = True
    wide = llama_cpp.GGML_TYPE_F16 if weight_format == "f16" else llama_cpp.GGML_TYPE_Q8_0
    params.token_embedding_type = wide
    params.output_tensor_type = wide
    handle, partial = tempfile.mkstemp(dir=folder, suffix=".partial")
    os.close(handle)
    try:
        status = llama_cpp.llama_model_quantize(
            str(source).encode(), partial.encode(), ctypes.byref(params)
        )
        if status != 0:
            raise RequestError(
                "model", f"{source}: llama.cpp could not write it as {weight_format}."
            )
        Path(partial).rename(target)
    finally:
        Path(partial).unlink(missing_ok=True)
    return target


class LlamaCppModel:
    """One model and context; a slot is a llama.cpp sequence (decoding.Stepper)."""

    def __init__(
        self,
        path: Path,
        *,
        max_context: int,
        max_batch: int,
        threads: int,
        flash_attention: bool,
        repack: bool,
    ) -> None:
        llama_cpp.llama_log_set(_ignore_log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        model_params.use_extra_bufts = repack
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        if not self._model:
            raise RequestError("model", f"{path}: llama.cpp could not load it.")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = max_context * max_batch
        params.n_batch = params.n_ubatch = _CHUNK
        params.n_seq_max = max_batch
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = False
        params.flash_attn_type = (
            llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
            if flash_attention
            else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        )
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if not self._context:
            llama_cpp.llama_model_free(self._model)
            raise RequestError("out_of_memory", f"{path}: llama.cpp could not make a context.")
        self.vocabulary = int(
            llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        )
        self.bytes = int(llama_cpp.llama_model_size(self._model))
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._lengths = [0] * max_batch
        self._batch = llama_cpp.llama_batch_init(_CHUNK, 0, 1)

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
        batch, count = self._batch, 0
        for slot, row in zip(slots, rows, strict=True):
            for offset, token in enumerate(row):
                batch.token[count] = token
                batch.pos[count] = self._lengths[slot] + offset
                batch.n_seq_id[count] = 1
                batch.seq_id[count][0] = slot
                batch.logits[count] = logits == "all"
                count += 1
            self._lengths[slot] += len(row)
        if logits == "last":
            batch.logits[count - 1] = True
        batch.n_tokens = count
        status = llama_cpp.llama_decode(self._context, batch)
        if status != 0:
            raise RequestError("device", f"llama_decode failed with status {status}.")
        return count

    def _logits(self, index: int) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits_ith(self._context, index)
        return np.ctypeslib.as_array(pointer, shape=(self.vocabulary,))
