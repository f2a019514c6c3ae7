"""Columns that a cache keeps decoded: which they are, and that they come back as they were."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache import DiskCache
from petastore.errors import DecodeError
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.decoded_columns import array_of, decoded_columns, entry_of
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.row_group import read_row_group_in_parts
from tests.servers.fixtures import Served, served

__all__ = ["served"]
ROWS = 5_000
KINDS = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.time64("us"), pa.timestamp("us", "UTC"), pa.duration("ms")),
]


def footer_of(folder: Path, table: pa.Table, **how: Any) -> Footer:
    pq.write_table(table, folder / "a.parquet", row_group_size=ROWS, **how)
    return read_footer(open_location(folder), "a.parquet")


@given(
    kind=st.sampled_from(KINDS),
    values=st.lists(st.none() | st.integers(0, 100), min_size=1, max_size=40),
    before=st.integers(0, 9),
    chunks=st.integers(1, 3),
)
def test_what_is_kept_comes_back(kind: Any, values: list[int | None], before: int, chunks: int) -> None:
    """Also of a slice, and of several chunks."""
    widths = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    numbers = pa.array([7] * before + values, widths[kind.bit_width])
    array = (numbers.cast(kind) if pa.types.is_floating(kind) else numbers.view(kind)).slice(before)
    column = pa.chunked_array([array] * chunks)
    entry, footer = entry_of(column, kind), Any
    found = array_of(entry, kind, len(column), column="x", footer=footer, ordinal=0)  # type: ignore[arg-type]
    found.validate(full=True)
    assert found.equals(column.combine_chunks())
    assert found.type == kind


def test_an_entry_of_another_size_is_refused(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, pa.table({"x": np.arange(10)}))
    with pytest.raises(DecodeError, match=r"a\.parquet.*79 bytes of a column of 10 values of int64.*cache clear"):
        array_of(pa.py_buffer(bytes(79)), pa.int64(), 10, column="x", footer=footer, ordinal=0)


def test_columns_of_one_width_are_decoded_if_all_together_take_no_more_than_twice_the_bytes(tmp_path: Path) -> None:
    random, few = np.random.default_rng(0).random(ROWS), np.arange(ROWS) % 4
    both = {"x": random, "y": few, "text": [str(one) for one in few], "flag": few > 1, "many": [[1]] * ROWS}
    footer = footer_of(tmp_path, pa.table(both))
    assert dict(decoded_columns(footer, 0)) == {"x": 8 * ROWS, "y": 8 * ROWS}
    footer = footer_of(tmp_path, pa.table({"x": random, **{f"y{n}": few for n in range(9)}}), compression="zstd")
    assert dict(decoded_columns(footer, 0)) == {"x": 8 * ROWS}


def test_where_values_are_missing_a_bit_is_kept_of_each(tmp_path: Path) -> None:
    values = {"gaps": pa.array([1.5, None] * 4), "x": np.arange(8)}
    assert dict(decoded_columns(footer_of(tmp_path, pa.table(values)), 0)) == {"gaps": 8 * 8 + 1, "x": 8 * 8}
    unsaid = footer_of(tmp_path, pa.table(values), write_statistics=False)
    assert dict(decoded_columns(unsaid, 0)) == {"gaps": 8 * 8, "x": 8 * 8}


def mixed() -> pa.Table:
    random = np.random.default_rng(1)
    floats, missing = random.random(2 * ROWS), random.random(2 * ROWS) < 0.2
    return pa.table(
        {
            "x": floats,
            "small": random.integers(0, 255, 2 * ROWS).astype(np.uint8),
            "gaps": pa.array(floats.astype(np.float32), mask=missing),
            "when": pa.array(random.integers(0, 1 << 40, 2 * ROWS)).cast(pa.timestamp("us")),
            "text": [f"{one:.3f}" for one in floats],
            "flag": missing,
            "list": [[float(one), 1.0] for one in floats],
        }
    )


PARTS = [
    [Part(("small", "gaps", "x", "when"))],
    [Part(("x", "small", "gaps", "when", "text", "flag", "list"))],
    [Part(("gaps",)), Part(("x", "when")), Part(("text",))],
    [Part(("x",), rows_at_once=700), Part(("text", "gaps"), rows_at_once=999)],
    [Part(("x", "text"), first=10)],
    [Part(("gaps",), first=10)],
    [Part(())],
]


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("parts", PARTS, ids=str)
def test_tables_are_those_of_reading_without_a_cache(parts: list[Part], served: Served, tmp_path: Path) -> None:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    footer = footer_of(folder, mixed())
    assert set(decoded_columns(footer, 1)) == {"x", "small", "gaps", "when"}
    location = open_location(f"http://127.0.0.1:{served.port}/{folder.name}")
    with DiskCache(tmp_path / "cache", limit=1 << 24) as cache:
        for kept, hits in ((None, 0), (KeptFiles(cache), 0), (KeptFiles(cache), 1)):
            files, before = OpenFiles(), cache.metrics.hits
            for ordinal in (0, 1):
                wanted = mixed().slice(ordinal * ROWS, ROWS)
                found = list(
                    read_row_group_in_parts(
                        location, footer.file, ordinal, parts, footers=FooterCache(), files=files, kept=kept
                    )
                )
                for part in parts:
                    rows = ROWS if part.first is None else part.first
                    tables = [found.pop(0)]
                    while sum(table.num_rows for table in tables) < rows:
                        tables.append(found.pop(0))
                    assert all(table.num_rows == part.rows_at_once for table in tables[:-1])
                    assert sum(table.num_rows for table in tables) == rows
                    if part.columns:
                        assert not hits or _lie_side_by_side(tables, part)
                        assert pa.concat_tables(tables).equals(wanted.select(part.columns).slice(0, rows))
                assert not found
            files.close()
            assert (cache.metrics.hits > before) == bool(hits and parts[0].columns)


def _lie_side_by_side(tables: list[pa.Table], part: Part) -> bool:
    """Whether decoded columns of a part that follow each other do so in memory, but for what their widths ask."""
    decoded = [tables[0].column(name).chunk(0) for name in part.columns if name in {"x", "small", "gaps", "when"}]
    starts = [array.buffers()[1].address for array in decoded]
    widths = [array.type.bit_width // 8 for array in decoded]
    ends = [
        start + ROWS * width + (-(-ROWS // 8) if array.null_count else 0)
        for start, width, array in zip(starts, widths, decoded, strict=True)
    ]
    return starts[1:] == [-(-end // width) * width for end, width in zip(ends[:-1], widths[1:], strict=True)]
