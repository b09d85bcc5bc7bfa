"""Token traces of a sweep: what its workers wrote for each trial, joined to one table a cell.

traces/<cell hash>/<block>.trace   as the worker wrote it, one for each traced trial
traces/<cell hash>.parquet         those of all finished blocks, made at the end of the sweep
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from harness.errors import ConfigError
from harness.trace.columns import COLUMNS, Decode, online_rows
from harness.trace.store import write_parquet
from harness.vocabulary import HIGH_PROBABILITY


def join(
    results: Path, records: Iterable[Mapping[str, Any]], numbers: Mapping[str, int], decode: Decode
) -> list[Path]:
    """Write the Parquet file of each traced cell of `records`; return the files.

    `numbers` gives each prompt's id the number that `request` holds, the same in every block;
    a column `block` tells repeats of a prompt apart. Raises ConfigError where a part is missing or
    damaged.
    """
    tables: dict[str, list[pd.DataFrame]] = defaultdict(list)
    for record in records:
        if record.get("trace"):
            tables[record["cell"]["hash"]].append(_rows(results, record, numbers, decode))
    written = []
    for cell_hash, parts in sorted(tables.items()):
        path = results / "traces" / f"{cell_hash}.parquet"
        write_parquet(pd.concat(parts, ignore_index=True), path)
        written.append(path)
    return written


def _rows(
    results: Path, record: Mapping[str, Any], numbers: Mapping[str, int], decode: Decode
) -> pd.DataFrame:
    path = results / str(record["trace"]["part"])
    requests = [numbers[prompt_id] for prompt_id in record["prompt_ids"]]
    try:
        rows = online_rows(path, requests, decode, HIGH_PROBABILITY)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"The token trace {path} cannot be read: {error} Remove the records of block "
            f"{record['block']} of {record['group']} to measure it again."
        ) from error
    return rows.assign(block=int(record["block"]))[["block", *COLUMNS]]
