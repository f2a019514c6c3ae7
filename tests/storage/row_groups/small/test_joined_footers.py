"""One footer with the row groups of many says what theirs said, each so much further back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.storage.row_groups.small.joined_footers import LARGEST, Chunks, alike_row_groups


def footer_of(number: int, **options: Any) -> bytes:
    rows = 6 + number
    sink = pa.BufferOutputStream()
    table = pa.table({"id": np.arange(rows), "word": [f"{number}" * (row % 3) for row in range(rows)]})
    pq.write_table(table, sink, row_group_size=5, **options)
    data = sink.getvalue().to_pybytes()
    return bytes(data[-8 - int.from_bytes(data[-8:-4], "little") : -8])


FOOTERS = [footer_of(number) for number in range(4)]


def parsed(footer: bytes) -> Any:
    file = b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    return pq.ParquetFile(pa.BufferReader(file)).metadata


def said_of(chunk: Any, moved: int = 0) -> tuple[Any, ...]:
    dictionary = None if chunk.dictionary_page_offset is None else chunk.dictionary_page_offset + moved
    sizes = chunk.total_compressed_size, chunk.total_uncompressed_size
    return chunk.path_in_schema, chunk.num_values, dictionary, chunk.data_page_offset + moved, sizes


asks = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), min_size=1, max_size=40)


@given(asks, st.lists(st.integers(0, 10**8), min_size=4, max_size=4))
def test_each_row_group_is_told_where_it_is_then(asked: list[tuple[int, int]], begins: list[int]) -> None:
    found = alike_row_groups(FOOTERS, asked)
    assert found is not None
    one = parsed(found.joined(np.array(begins)))
    assert one.num_row_groups == len(asked)
    for number, (file, ordinal) in enumerate(asked):
        group = parsed(FOOTERS[file]).row_group(ordinal)
        assert one.row_group(number).num_rows == group.num_rows
        for leaf in range(2):
            assert said_of(one.row_group(number).column(leaf)) == said_of(group.column(leaf), begins[file])
    assert one.num_rows == found.chunks.rows.sum()


def test_what_is_said_of_chunks_is_told() -> None:
    found = alike_row_groups(FOOTERS, [(1, 1), (3, 0)])
    assert found is not None
    groups = parsed(FOOTERS[1]).row_group(1), parsed(FOOTERS[3]).row_group(0)
    chunks = [[group.column(leaf) for leaf in range(2)] for group in groups]
    assert found.chunks.rows.tolist() == [group.num_rows for group in groups]
    assert found.chunks.values.tolist() == [[chunk.num_values for chunk in row] for row in chunks]
    assert found.chunks.stored.tolist() == [[chunk.total_compressed_size for chunk in row] for row in chunks]
    assert found.chunks.data.tolist() == [[chunk.data_page_offset for chunk in row] for row in chunks]
    assert found.chunks.dictionary.tolist() == [[chunk.dictionary_page_offset for chunk in row] for row in chunks]


@pytest.mark.parametrize(
    ("footers", "asked"),
    [
        ([*FOOTERS, footer_of(0, compression="none", use_dictionary=False)], [(0, 0)]),
        (FOOTERS, [(0, 0), (1, 2)]),
        ([FOOTERS[0][:-20], *FOOTERS[1:]], [(0, 0)]),
        ([FOOTERS[0], FOOTERS[1][:-20]], [(0, 0)]),
        ([b""], [(0, 0)]),
    ],
    ids=["unlike", "a row group that is not there", "first cut off", "another cut off", "empty"],
)
def test_what_is_not_alike_or_not_right_is_none(footers: list[bytes], asked: list[tuple[int, int]]) -> None:
    assert alike_row_groups(footers, asked) is None


def chunks(**changes: Any) -> Chunks:
    said = {"rows": [3], "values": [[3]], "stored": [[50]], "dictionary": [[4]], "data": [[24]], **changes}
    return Chunks(**{name: np.array(value) for name, value in said.items()})


def test_moved_chunks_lie_so_much_further_back_and_one_without_a_dictionary_still_has_none() -> None:
    assert chunks().moved(np.array([100])).dictionary.tolist() == [[104]]
    moved = chunks(dictionary=[[-1]]).moved(np.array([100]))
    assert (moved.dictionary.tolist(), moved.data.tolist()) == ([[-1]], [[124]])


@pytest.mark.parametrize(
    ("changes", "end", "may_be"),
    [
        ({}, 54, True),
        ({}, 53, False),
        ({"dictionary": [[-1]]}, 74, True),
        ({"dictionary": [[-1]]}, 73, False),
        ({"dictionary": [[3]]}, 99, False),
        ({"dictionary": [[24]]}, 99, False),
        ({"dictionary": [[25]]}, 99, False),
        ({"stored": [[0]]}, 99, False),
        ({"stored": [[-5]]}, 99, False),
    ],
)
def test_pages_that_cannot_be_where_they_are_said_to_be_are_seen(changes: Any, end: int, may_be: bool) -> None:
    assert chunks(**changes).lie_before(np.array([end])) is may_be


def test_more_rows_than_can_be_written_are_not_joined() -> None:
    assert LARGEST == 2**34 - 1
