"""llama.cpp's log: hundreds of lines for each model, of which the last complaints are kept."""

from __future__ import annotations

import ctypes
from collections import deque

import llama_cpp

_WARNING, _ERROR = 3, 4
"""ggml_log_level of ggml.h."""

_complaints: deque[str] = deque(maxlen=3)


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator]
def _keep_complaints(level: int, text: bytes, _data: object) -> None:
    if level in (_WARNING, _ERROR):
        _complaints.append(text.decode(errors="replace").strip())


def quiet() -> None:
    """Keep llama.cpp's log off stderr from now on."""
    llama_cpp.llama_log_set(_keep_complaints, ctypes.c_void_p(0))


def begin() -> None:
    """Forget earlier complaints: what follows is about the next call."""
    _complaints.clear()


def complaints() -> str:
    """What llama.cpp complained of since `begin`, as an addition to an error message."""
    return f" llama.cpp says: {' '.join(_complaints)}" if _complaints else ""
