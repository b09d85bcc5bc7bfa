"""The rows of a token trace file, as backends.protocol reads and writes them."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.protocol import TRACE_STRUCT, TraceRow, read_trace

FLOAT = st.floats(width=32, allow_nan=False)
TOKEN = st.integers(-1, 2**31 - 1)
COUNT = st.integers(0, 2**32 - 1)
ROWS = st.builds(
    TraceRow,
    *(COUNT, COUNT, st.integers(0, 2**16 - 1), st.integers(0, 2), COUNT),
    *(TOKEN, TOKEN, TOKEN),
    *(FLOAT, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT),
    *(COUNT, st.integers(0, 1)),
)


@given(st.lists(ROWS, max_size=5))
def test_trace_rows_come_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[TraceRow]
) -> None:
    path = tmp_path_factory.mktemp("trace") / "rows"
    path.write_bytes(b"".join(row.pack() for row in rows))
    assert list(read_trace(path)) == rows


def test_a_trace_row_lies_as_documented(tmp_path: Path) -> None:
    assert TRACE_STRUCT.size == 64
    raw = struct.pack("<IIHHI", 1, 2, 3, 1, 4) + struct.pack("<iii", 5, 6, -1)
    raw += struct.pack("<ffffff", 0.5, 0.25, 0.125, 1.0, 2.0, 0.0) + struct.pack("<III", 7, 1, 0)
    (tmp_path / "t").write_bytes(raw)
    (row,) = read_trace(tmp_path / "t")
    assert row == TraceRow(1, 2, 3, 1, 4, 5, 6, -1, 0.5, 0.25, 0.125, 1.0, 2.0, 0.0, 7, 1)
    assert row.reached


def test_damaged_traces_are_refused(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(bytes(63))
    with pytest.raises(ValueError, match=r"63 bytes are no whole number of 64-byte trace rows"):
        list(read_trace(tmp_path / "t"))
    (tmp_path / "t").write_bytes(bytes(10) + b"\x09" + bytes(53))
    with pytest.raises(ValueError, match="row 0 has the unknown status 9"):
        list(read_trace(tmp_path / "t"))
