"""What a cache keeps decoded comes back as it was: one column, or neighbours together."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import DecodeError
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.kept_chunks import KeptChunks, entry_of

KINDS = [
    *(pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.time64("us"), pa.timestamp("us", "UTC"), pa.duration("ms")),
]


def kept(kind: Any, rows: int, columns: int = 1) -> KeptChunks:
    places = tuple(ByteRange(4 + 100 * number, 100) for number in range(columns))
    return KeptChunks(places, tuple(f"x{number}" for number in range(columns)), kind, rows)


@given(data=st.data(), kind=st.sampled_from(KINDS), rows=st.integers(1, 40), chunks=st.integers(1, 3))
def test_what_is_kept_comes_back(data: st.DataObject, kind: Any, rows: int, chunks: int) -> None:
    """Also of slices, and of several chunks; where values of some columns are missing, and none of others."""
    widths = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
    columns = []
    for _ in range(data.draw(st.integers(1, 4))):
        value = st.integers(0, 100)
        one = data.draw(st.lists(data.draw(st.sampled_from([value, value | st.none()])), min_size=rows, max_size=rows))
        before = data.draw(st.integers(0, 9))
        numbers = pa.array([7] * before + one, widths[kind.bit_width])
        array = (numbers.cast(kind) if pa.types.is_floating(kind) else numbers.view(kind)).slice(before)
        columns.append(pa.chunked_array([array] * chunks))
    entry = entry_of(columns, kind)
    found = kept(kind, rows * chunks, len(columns)).arrays(entry)
    for array, column in zip(found, columns, strict=True):
        array.validate(full=True)
        assert array.equals(column.combine_chunks())
        assert array.type == kind
    starts = [array.buffers()[1].address - entry.address for array in found]
    assert starts == [number * rows * chunks * kind.bit_width // 8 for number in range(len(columns))], "not one array"


@pytest.mark.parametrize(("columns", "size"), [(1, 79), (2, 162), (2, 160 + 3)])
def test_an_entry_of_another_size_is_refused(columns: int, size: int) -> None:
    found = rf"{size} bytes of {'a column' if columns == 1 else '2 columns'} of 10 values of int64.*cache clear"
    with pytest.raises(DecodeError, match=found):
        kept(pa.int64(), 10, columns).arrays(pa.py_buffer(bytes(size)))


def test_who_has_a_chunk_too_is_known() -> None:
    both = kept(pa.int64(), 10, 2)
    first, second = both.others
    assert (first.ranges, second.columns) == (both.ranges[:1], ("x1",))
    assert first._replace(within=both).others == (both,)
    assert not first.others
