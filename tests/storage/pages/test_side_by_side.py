"""Headers of many columns that are looked at together are refused as those that are looked at one by one."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import DecodeError
from petastore.inventory import DataFile
from petastore.storage.pages import damage
from petastore.storage.pages.damage import refuse_damaged_pages
from petastore.storage.pages.side_by_side import seen_right

MANY = {"dictionaries": {"use_dictionary": True}, "plain": {"use_dictionary": False, "write_statistics": False}}


@functools.cache
def wide_file(kind: str) -> tuple[bytes, Any]:
    """The bytes of a file with many columns of a few kinds, and its metadata."""
    numbers = np.arange(400)
    columns: dict[str, Any] = {}
    for n in range(24):
        columns[f"float {n}"] = (numbers % 50 * (n + 0.5)).astype(np.float32)
        columns[f"int {n}"] = pa.array(numbers + n, pa.int64(), mask=numbers % 5 == 0 if n % 2 else None)
        columns[f"text {n}"] = [f"{n % 3} {number % 7}" for number in numbers.tolist()]
    sink = pa.BufferOutputStream()
    pq.write_table(
        pa.table(columns), sink, write_page_checksum=True, data_page_size=900, write_batch_size=100, **MANY[kind]
    )
    data = sink.getvalue().to_pybytes()
    return data, pq.read_metadata(pa.BufferReader(data))


@pytest.mark.parametrize("kind", MANY)
def test_many_headers_are_seen_right_together(kind: str) -> None:
    data, metadata = wide_file(kind)
    group, asked = metadata.row_group(0), []

    def read(size: int, at: int) -> bytes:
        asked.append(at)
        return data[at : at + size]

    columns = [group.column(leaf) for leaf in range(metadata.num_columns)]
    are_right = seen_right(read, columns)
    assert are_right.mean() > 0.9
    assert len(asked) > len(columns)  # chunks of several pages are among them


Flip = tuple[int, int, int]
flips: st.SearchStrategy[list[Flip]] = st.lists(
    st.tuples(st.integers(0, 71), st.integers(0, 127), st.integers(0, 7)), max_size=4
)


@pytest.mark.parametrize("kind", MANY)
@given(flips=flips)
def test_headers_that_are_looked_at_together_are_refused_as_one_by_one(kind: str, flips: list[Flip]) -> None:
    data, metadata = wide_file(kind)
    damaged, group = bytearray(data), metadata.row_group(0)
    for leaf, place, bit in flips:
        at = min(filter(None, [group.column(leaf).dictionary_page_offset, group.column(leaf).data_page_offset]))
        damaged[at + place] ^= 1 << bit
    assert refused(bytes(damaged), metadata, together=True) == refused(bytes(damaged), metadata, together=False)


def refused(data: bytes, metadata: Any, *, together: bool) -> str | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(damage, "FEWEST_TOGETHER", 2 if together else math.inf)
        try:
            refuse_damaged_pages(
                lambda size, at: data[at : at + size], metadata, range(metadata.num_columns), file=DataFile("", 0),
                ordinal=0,
            )  # fmt: skip
        except DecodeError as problem:
            return str(problem)
    return None
