"""Property-based test of windows: they equal a double loop for random files, filters, offsets, shards and order."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import petastore
from petastore import NGram
from tests.tier import examples
from tests.windows_by_hand import windows_by_hand

SCHEMA = pa.schema([pa.field("time", pa.int64(), nullable=False), pa.field("kept", pa.bool_()), ("name", pa.string())])

# Time steps between rows, by file and row group.
FILES = st.lists(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=7), min_size=1, max_size=5),
    min_size=1,
    max_size=3,
)


def write(folder: Path, files: list[list[list[tuple[int, bool]]]], begin_anew: bool) -> list[pa.Table]:
    """Write the row groups and return their tables; with `begin_anew`, each file begins at time 0."""
    tables, time, number = [], 0, 0
    for place, row_groups in enumerate(files):
        time = 0 if begin_anew else time
        with pq.ParquetWriter(folder / f"{place}.parquet", SCHEMA) as writer:
            for rows in row_groups:
                times = time + np.cumsum([step for step, _ in rows], dtype=np.int64)
                time = int(times[-1]) if len(times) else time
                names = [None if row % 4 == 0 else f"n{row}" for row in range(number, number + len(rows))]
                number += len(rows)
                tables.append(pa.table([times, [kept for _, kept in rows], names], schema=SCHEMA))
                writer.write_table(tables[-1])
    return tables


@pytest.mark.filterwarnings("ignore:none of the:UserWarning")
@settings(max_examples=examples(60))
@given(
    files=FILES,
    begin_anew=st.booleans(),
    offsets=st.sets(st.integers(-2, 3), min_size=1, max_size=3),
    most=st.integers(0, 4),
    overlap=st.booleans(),
    filtered=st.booleans(),
    shards=st.integers(1, 3),
    shuffle=st.booleans(),
)
def test_windows_of_random_data_equal_a_reference_implementation(
    files: Any,
    begin_anew: bool,
    offsets: set[int],
    most: int,
    overlap: bool,
    filtered: bool,
    shards: int,
    shuffle: bool,
) -> None:
    length = max(offsets) - min(offsets) + 1
    asked = NGram({offset: ["time", "name"] for offset in offsets}, most, "time", overlap)
    options: dict[str, Any] = {"shuffle_rows": shuffle, "shuffle_row_groups": shuffle, "filter_cache": False}
    options |= {
        "filters": [("kept", "==", True)] if filtered else None,
        "reader_pool_type": "dummy",
        "last_batch": "pad",
    }
    with tempfile.TemporaryDirectory() as folder:
        tables = write(Path(folder), files, begin_anew)
        kept = [table.filter(table["kept"]) if filtered else table for table in tables]
        by_hand = windows_by_hand(
            [table["time"].to_pylist() for table in kept if table.num_rows], length=length, most=most, overlap=overlap
        )
        rows = [table.to_pylist() for table in kept if table.num_rows]
        wanted = [offset - min(offsets) for offset in sorted(offsets)]
        expected = [
            tuple((rows[group][row]["time"], rows[group][row]["name"]) for group, row in (window[k] for k in wanted))
            for window in by_hand
        ]
        found = []
        for shard in range(shards):
            with petastore.make_reader(folder, asked, cur_shard=shard, shard_count=shards, **options) as reader:
                for batch in reader.iter_batches(4):
                    columns = zip(batch["time"].tolist(), batch["name"].tolist(), batch["valid"].tolist(), strict=True)
                    found += [tuple(zip(times, names, strict=True)) for times, names, valid in columns if valid]
    assert collected(found) == collected(expected)
    if shards == 1 and not shuffle:
        assert found == expected


def collected(windows: list[Any]) -> list[str]:
    return sorted(map(repr, windows))
