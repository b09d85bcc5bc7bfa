"""GGUF files made in the weight formats of the llama.cpp backend."""

from __future__ import annotations

import ctypes
import os
import tempfile
from pathlib import Path

import llama_cpp

from backends import llama_cpp_log
from backends.protocol import RequestError

_FILE_TYPES = {
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
}


def make_gguf(source: Path, weight_format: str, target: Path) -> None:
    """Write `source` as `target` in another weight format with llama.cpp's own quantizer.

    The embedding, which is the demo model's head as well, stays 8-bit in the 4-bit formats, so that
    each engine reads the same bytes. The file appears under its name only when it is whole. Raises
    RequestError.
    """
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = _FILE_TYPES[weight_format]
    params.allow_requantize = True
    wide = llama_cpp.GGML_TYPE_F16 if weight_format == "f16" else llama_cpp.GGML_TYPE_Q8_0
    params.token_embedding_type = wide
    params.output_tensor_type = wide
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    except OSError as error:
        raise RequestError("model", f"{target} cannot be written: {error.strerror}.") from error
    os.close(handle)
    llama_cpp_log.begin()
    try:
        status = llama_cpp.llama_model_quantize(
            str(source).encode(), partial.encode(), ctypes.byref(params)
        )
        if status != 0:
            raise RequestError(
                "model",
                f"{source}: llama.cpp could not write it as {weight_format}."
                + llama_cpp_log.complaints(),
            )
        Path(partial).rename(target)
    finally:
        Path(partial).unlink(missing_ok=True)
