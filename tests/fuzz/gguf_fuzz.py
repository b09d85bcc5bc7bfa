"""atheris (libFuzzer): the GGUF import takes any bytes or refuses them with a CheckpointError.

    python -m tests.fuzz.gguf_fuzz -max_total_time=60

An input is the front of a file, from the magic number to the tensor table; behind it lie more bytes
than the tensors of the seeds need, so that mutations are spent on what the reader interprets. Any
other exception is a finding, as is an output that its own reader does not take back. Further
arguments are libFuzzer's.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris
import numpy as np
from gguf import GGUFReader

with atheris.instrument_imports(include=["backends.pack"]):
    from backends.pack.errors import CheckpointError
    from backends.pack.gguf_import import pack_gguf
    from backends.pack.packed import PackedFile

from tests.fakes.gguf_of_checkpoint import write_gguf_of
from tests.fakes.tiny_checkpoint import tiny
from tests.fakes.tiny_llama import write_gguf

KINDS = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1")
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
ALIGNMENT = 32
# f16 values around 1, whatever type a tensor is said to have; the largest seed needs 515 KiB of it.
BEHIND = np.full(1 << 19, 0x3C00, "<u2").tobytes()
MOST_BYTES = 1 << 15  # of an input


def write_seeds(folder: Path) -> None:
    """The fronts of small models of every tensor type and architecture."""
    for kind in KINDS:
        write_gguf(folder / kind, layers=kind)
    for architecture in ARCHITECTURES:
        write_gguf_of(tiny(architecture), folder / architecture)
    for file in folder.iterdir():
        front = int(GGUFReader(file).data_offset)
        file.write_bytes(file.read_bytes()[:front])


def run_one(data: bytes, scratch: Path) -> None:
    source, packed = scratch / "m.gguf", scratch / "m.sqm"
    source.write_bytes(data + bytes(-len(data) % ALIGNMENT) + BEHIND)
    try:
        pack_gguf(source, packed)
    except CheckpointError:
        return
    PackedFile(packed).verify()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        seeds, scratch = Path(folder) / "seeds", Path(folder) / "scratch"
        seeds.mkdir()
        scratch.mkdir()
        write_seeds(seeds)
        options = [f"-max_len={MOST_BYTES}", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *options, *sys.argv[1:], str(seeds)],
                      lambda data: run_one(data, scratch))  # fmt: skip
        atheris.Fuzz()


if __name__ == "__main__":
    main()
