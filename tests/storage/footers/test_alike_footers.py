"""Footers that are alike are counted together, and just as each by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import MetadataError
from petastore.storage.footers.alike_footers import FEWEST, alike_footers
from petastore.storage.footers.row_group_counts import row_group_counts


def footer_of(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    data = sink.getvalue().to_pybytes()
    length = int.from_bytes(data[-8:-4], "little")
    return data[-8 - length : -8]


def some_footer(number: int) -> bytes:
    rows = 1 + number * number % 400
    name = pa.array(["x" * (number % 50)] * rows)
    table = pa.table({"id": np.arange(rows) * 10**number, "name": name, "list": [[row] for row in range(rows)]})
    return footer_of(table, row_group_size=max(-(-rows // 2), 1), write_page_index=True, write_page_checksum=True)


FOOTERS = [some_footer(number % 18) for number in range(FEWEST + 30)]


@given(
    st.lists(st.tuples(st.integers(0, len(FOOTERS) - 1), st.integers(0, 10**4), st.integers(1, 255)), max_size=40),
    st.randoms(use_true_random=False),
)
def test_counts_are_those_of_each_by_itself_whatever_is_damaged(flips: list[tuple[int, int, int]], random: Any) -> None:
    footers = [bytearray(footer) for footer in FOOTERS]
    for number, place, bits in flips:
        footers[number][place % len(footers[number])] ^= bits
    random.shuffle(footers)
    found = [bytes(footer) for footer in footers]
    seen: set[int] = set()
    for kind in alike_footers(found):
        assert seen.isdisjoint(kind.members.tolist())
        seen.update(kind.members.tolist())
        for member, counts in zip(kind.members.tolist(), kind.counts, strict=True):
            np.testing.assert_array_equal(row_group_counts(found[member], source="x"), counts)


def test_most_footers_of_one_writer_are_alike() -> None:
    kinds = alike_footers(FOOTERS)
    assert sum(len(kind.members) for kind in kinds) > FEWEST
    for kind in kinds:
        assert (kind.num_rows == kind.counts[:, 0].sum(axis=1)).all()


def test_few_footers_damaged_and_empty_ones_are_in_no_kind() -> None:
    assert alike_footers(FOOTERS[: FEWEST - 1]) == []
    assert alike_footers([b""] * 100) == []
    assert all(len(kind.members) == 0 for kind in alike_footers([b"\xff" * 30] * 100))


@given(st.binary(max_size=60))
def test_no_bytes_break_it(data: bytes) -> None:
    for kind in alike_footers([data] * FEWEST):
        for member, counts in zip(kind.members.tolist(), kind.counts, strict=True):
            assert member < FEWEST
            try:
                np.testing.assert_array_equal(row_group_counts(data, source="x"), counts)
            except MetadataError as problem:
                raise AssertionError(f"{data!r} is no footer, but was counted") from problem
