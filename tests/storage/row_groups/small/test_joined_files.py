"""Small files that are decoded as one give what each gives by itself, whatever is damaged."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.row_groups.small.joined_files import JoinedFiles, joined_files

FILES, GROUPS = 6, 2


def file_of(number: int, **options: Any) -> bytes:
    rows = [31, 1, 100, 7][number % 4]
    generator = np.random.default_rng(number)
    table = pa.table(
        {
            "id": np.arange(rows) + 1000 * number,
            "x": generator.random(rows),
            "few": pa.array([None if row % 3 == 0 else row % 5 for row in range(rows)], pa.int16()),
            "name": [f"{'x' * (row % 4)}{number}" for row in range(rows)],
            "flag": generator.random(rows) < 0.5,
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=-(-rows // GROUPS), **options)
    return bytes(sink.getvalue().to_pybytes())


@functools.cache
def files_of(*options: tuple[str, Any]) -> tuple[bytes, ...]:
    return tuple(file_of(4 * number, **dict(options)) for number in range(FILES))


def footer_of(file: bytes) -> bytes:
    return file[-8 - int.from_bytes(file[-8:-4], "little") : -8]


def joined(files: Sequence[bytes], asked: Sequence[tuple[int, int]]) -> JoinedFiles | None:
    return joined_files(files, [footer_of(file) for file in files], asked)


def table_of(file: bytes, *groups: int) -> pa.Table:
    reader = pq.ParquetFile(pa.BufferReader(file), page_checksum_verification=True)
    return reader.read_row_groups(list(groups) or range(reader.num_row_groups), use_threads=False)


OPTIONS = (
    (),
    (("write_page_checksum", True), ("compression", "zstd")),
    (("use_dictionary", False), ("compression", "none")),
    (("write_statistics", False), ("write_page_index", False), ("compression", "gzip")),
    (("write_page_index", True), ("store_schema", False)),
)
asked_of = st.lists(st.tuples(st.integers(0, FILES - 1), st.integers(0, GROUPS - 1)), min_size=1, max_size=20)


@given(st.sampled_from(OPTIONS), asked_of)
def test_row_groups_of_joined_files_are_those_asked_for_in_their_order(options: Any, asked: Any) -> None:
    files = files_of(*options)
    one = joined(files, asked)
    assert one is not None
    assert one.have_a_page_each(range(5))
    assert table_of(one.data).equals(pa.concat_tables([table_of(files[file], group) for file, group in asked]))
    reader = pq.ParquetFile(pa.BufferReader(one.data))
    assert [reader.metadata.row_group(number).num_rows for number in range(len(asked))] == one.chunks.rows.tolist()


@given(
    st.sampled_from(OPTIONS),
    st.lists(st.tuples(st.integers(0, FILES - 1), st.integers(0, 10**5), st.integers(1, 255)), min_size=1, max_size=4),
)
def test_damaged_files_that_are_decoded_as_one_give_what_each_gives_by_itself(options: Any, flips: Any) -> None:
    damaged = [bytearray(file) for file in files_of(*options)]
    for file, place, bits in flips:
        damaged[file][place % (len(damaged[file]) - 8)] ^= bits
    files = [bytes(file) for file in damaged]
    asked = [(file, 0) for file in range(FILES)]
    one = joined(files, asked)
    if one is None or not one.have_a_page_each(range(5)):
        return
    try:
        table = table_of(one.data)
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        return
    if table.num_rows != one.chunks.rows.sum():
        return
    each = pa.concat_tables([table_of(file, 0) for file in files])
    # Text that is no UTF-8, and numbers that flipped, are what they are: compared by their bytes.
    assert table.num_rows == each.num_rows
    for ours, theirs in zip(table.columns, each.columns, strict=True):
        assert as_bytes(ours) == as_bytes(theirs)


def as_bytes(column: pa.ChunkedArray) -> list[Any]:
    whole = column.combine_chunks()
    if pa.types.is_string(whole.type):
        whole = whole.view(pa.binary())
    if pa.types.is_floating(whole.type):
        whole = whole.view(pa.int64())
    return list(whole.to_pylist())


def test_files_that_are_not_alike_are_not_joined() -> None:
    other = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": np.arange(10)}), other)
    files = [*files_of(), bytes(other.getvalue().to_pybytes())]
    assert joined(files, [(0, 0), (FILES, 0)]) is None
    assert joined(files[:FILES], [(0, GROUPS)]) is None
    assert joined([b"PAR1"], [(0, 0)]) is None


def test_pages_outside_of_their_own_file_are_not_followed_into_the_next() -> None:
    files = list(files_of())
    footer = footer_of(files[0])
    cut = [b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1", *files[1:]]
    assert joined(cut, [(0, 0), (1, 0)]) is None


@pytest.mark.parametrize(
    "options",
    [{"data_page_size": 64, "write_batch_size": 4, "use_dictionary": False}, {"data_page_version": "2.0"}],
    ids=["several pages", "pages of version 2"],
)
def test_what_is_not_seen_at_a_glance_is_left_to_each_file(options: dict[str, Any]) -> None:
    one = joined([file_of(2, **options)] * 2, [(0, 0), (1, 0)])
    assert one is not None
    assert not one.have_a_page_each([0])


def test_a_page_with_one_value_more_than_rows_is_seen() -> None:
    files = list(files_of(("use_dictionary", False), ("compression", "none")))
    one = joined(files, [(0, 0), (1, 0)])
    assert one is not None
    rows = one.chunks.rows[0]
    header = files[0].index(bytes([0x15, 0x00, 0x15]), 4)
    values = files[0].index(bytes([0x2C, 0x15, rows << 1]), header) + 2
    damaged = bytearray(files[0])
    damaged[values] += 2
    one = joined([bytes(damaged), files[1]], [(0, 0), (1, 0)])
    assert one is not None
    assert not one.have_a_page_each([0])
