"""Columns that a cache keeps decoded: which they are, and that they come back as they were."""

from __future__ import annotations

import itertools
import re
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.cache import DiskCache
from petastore.storage.files.location import open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import Footer, read_footer
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.kept_chunks import KeptChunks
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.decoded_columns import decoded_columns, kept_chunks
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.row_group import read_row_group_in_parts
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

ROWS = 5_000


def footer_of(folder: Path, table: pa.Table, **how: Any) -> Footer:
    pq.write_table(table, folder / "a.parquet", row_group_size=ROWS, **how)
    return read_footer(open_location(folder), "a.parquet")


def sizes(footer: Footer, ordinal: int = 0) -> dict[str, int]:
    """Of each column that is kept decoded: its bytes."""
    found = decoded_columns(footer, ordinal)
    return {name: size for one in found for name, size in zip(one.columns, one.sizes, strict=True)}


def test_columns_of_one_width_are_decoded_if_all_together_take_no_more_than_twice_the_bytes(tmp_path: Path) -> None:
    random, few = np.random.default_rng(0).random(ROWS), np.arange(ROWS) % 4
    both = {"x": random, "y": few, "text": [str(one) for one in few], "flag": few > 1, "many": [[1]] * ROWS}
    footer = footer_of(tmp_path, pa.table(both))
    assert sizes(footer) == {"x": 8 * ROWS, "y": 8 * ROWS}
    footer = footer_of(tmp_path, pa.table({"x": random, **{f"y{n}": few for n in range(9)}}), compression="zstd")
    assert sizes(footer) == {"x": 8 * ROWS}


def test_where_values_are_missing_a_bit_is_kept_of_each(tmp_path: Path) -> None:
    values = {"gaps": pa.array([1.5, None] * 4), "x": np.arange(8)}
    assert sizes(footer_of(tmp_path, pa.table(values))) == {"gaps": 8 * 8 + 1, "x": 8 * 8}
    unsaid = footer_of(tmp_path, pa.table(values), write_statistics=False)
    assert sizes(unsaid) == {"gaps": 8 * 8, "x": 8 * 8}


def mixed() -> pa.Table:
    random = np.random.default_rng(1)
    floats, missing = random.random(2 * ROWS), random.random(2 * ROWS) < 0.2
    return pa.table(
        {
            "x": floats,
            "y": floats + 1,
            "small": random.integers(0, 255, 2 * ROWS).astype(np.uint8),
            "gaps": pa.array(floats.astype(np.float32), mask=missing),
            "whole": floats.astype(np.float32),
            "when": pa.array(random.integers(0, 1 << 40, 2 * ROWS)).cast(pa.timestamp("us")),
            "text": [f"{one:.3f}" for one in floats],
            "flag": missing,
            "list": [[float(one), 1.0] for one in floats],
        }
    )


DECODED = {"x", "y", "small", "gaps", "whole", "when"}
PARTS = [
    [Part(("small", "gaps", "whole", "x", "y", "when"))],
    [Part(("x", "whole")), Part(("y", "gaps"), rows_at_once=700)],
    [Part(("x", "y", "text"))],
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
    assert set(sizes(footer, 1)) == DECODED
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
    """Whether decoded columns of one type that follow each other in a part do so in memory."""
    decoded = [tables[0].column(name).chunk(0) for name in part.columns if name in DECODED]
    return all(
        other.buffers()[1].address == one.buffers()[1].address + ROWS * one.type.bit_width // 8
        for one, other in itertools.pairwise(decoded)
        if one.type == other.type
    )


def wide(columns: int = 19) -> pa.Table:
    numbers = np.arange(columns * 100).reshape(columns, 100)
    return pa.table({f"x{number}": column for number, column in enumerate(numbers)} | {"text": ["a"] * 100})


def kept_of(footer: Footer, names: Sequence[str]) -> list[KeptChunks]:
    columns = {leaf: name for name in names for leaf in footer.leaves[name]}
    return kept_chunks(footer, 0, columns, chunk_ranges(footer.metadata, 0, columns, footer.file))


def test_neighbours_of_one_type_are_one_entry_where_all_are_asked_for(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, wide())
    every = [f"x{number}" for number in range(19)]
    assert [one.columns for one in kept_of(footer, every)] == [tuple(every[:8]), tuple(every[8:16]), tuple(every[16:])]
    some = kept_of(footer, ["text", *every[1:9]])
    assert [one.columns for one in some] == [(name,) for name in ["text", *every[1:9]]]
    assert [one.within and one.within.columns for one in some] == [None, *[tuple(every[:8])] * 7, tuple(every[8:16])]


@given(asked=st.lists(st.integers(0, 18), min_size=1, unique=True))
def test_who_asks_for_the_same_columns_finds_the_same_entries_in_whatever_order(asked: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        footer = footer_of(Path(folder), wide())
    found = [kept_of(footer, [f"x{number}" for number in order]) for order in (asked, sorted(asked))]
    assert set(found[0]) == set(found[1])
    assert sorted(name for one in found[0] for name in one.columns) == sorted(f"x{number}" for number in asked)


def test_of_large_columns_fewer_are_one_entry(tmp_path: Path) -> None:
    rows = 200_000
    table = pa.table({name: np.random.default_rng(0).random(rows) for name in "abcde"})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows)
    footer = read_footer(open_location(tmp_path), "a.parquet")
    assert [one.columns for one in kept_of(footer, "abcde")] == [("a", "b"), ("c", "d"), ("e",)]


def test_a_chunk_that_two_columns_share_is_kept_as_it_is_stored(tmp_path: Path) -> None:
    footer = footer_of(tmp_path, wide(3))
    place, other = ByteRange(4, 90), ByteRange(94, 90)
    columns = {0: "x0", 1: "x1", 2: "x2"}
    found = kept_chunks(footer, 0, columns, {0: place, 1: place, 2: other})
    assert [(one.ranges, one.kind) for one in found] == [((place,), None), ((other,), pa.int64())]


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("first", [["x0", "x1", "x2"], ["x2"], ["x0", "x1", "x2", "x3", "x4"]], ids=str)
@pytest.mark.parametrize("then", [["x0", "x1", "x2", "x3", "x4"], ["x1"], ["x4", "x2"]], ids=str)
def test_what_is_there_in_another_entry_is_not_fetched_again(
    first: list[str], then: list[str], served: Served, proxy: FaultProxy, tmp_path: Path
) -> None:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    footer = footer_of(folder, wide(5), compression="none", use_dictionary=False)
    location = open_location(f"{proxy.url}/{folder.name}")
    with DiskCache(tmp_path / "cache", limit=1 << 24) as cache:
        for columns, there in ((first, set[str]()), (then, set(first)), (then, set(then))):
            files, kept = OpenFiles(), KeptFiles(cache)
            proxy.begin(Faults())
            parts = [Part(tuple(columns))]
            (found,) = read_row_group_in_parts(
                location, footer.file, 0, parts, footers=FooterCache(), files=files, kept=kept
            )
            assert found.equals(wide(5).select(columns))
            files.close()
            places = {one: kept_of(footer, [one])[0].ranges[0] for one in columns if one not in there}
            asked = [re.search(r" bytes=(\d+)-(\d+)$", head) for head in proxy.counted.heads]
            chunks = [(int(one[1]), int(one[2]) + 1) for one in asked if one is not None]
            chunks = [one for one in chunks if one[1] < footer.file.size]
            wanted = (
                [(min(places.values()).offset, max(places.values()).end)] if places else []
            )  # a hole is fetched, too
            assert chunks == wanted
