"""Tests of assembling encoded columns: selected rows, errors with their row, ragged arrays, images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.codecs.arrow.arrow_views import byte_cells
from petastore.decoding.decode import Decoded, empty_column
from petastore.errors import DecodeError
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.readers.assembly.encoded import ColumnSource, EncodedCells, EncodedColumn
from petastore.readers.loaded.arena import Layout, Place, Stack
from petastore.readers.loaded.row_group_reader import LoadedRowGroup

NUMBER = UnischemaField("x", np.int32, nullable=True)
PLAIN = EncodedColumn.of(NUMBER)
LAYOUT = Layout((Stack(("x",), np.dtype(np.int32), (), in_read_order=True),), ())


def where_they_are(groups: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    return groups, rows


def cells_of(loaded: dict[int, LoadedRowGroup], *, most: int | None = None) -> EncodedCells:
    return EncodedCells(loaded, LAYOUT, where_they_are, most)


def with_cells(cells: pa.Array, **more: Any) -> LoadedRowGroup:
    given = {"sizes": {}, "files": {}, **more}
    return LoadedRowGroup(len(cells), Place(0, len(cells), (), None), {}, {"x": cells}, **given)


def stacked(values: list[int], missing: list[int], read_order: list[int] | None = None) -> LoadedRowGroup:
    order = None if read_order is None else np.array(read_order)
    laid = np.array(values, np.int32) if order is None else np.array(values, np.int32)[order]
    masks = {"x": np.isin(np.arange(len(values)), missing)} if missing else {}
    place = Place(0, len(values), (laid[None, :],), None if order is None else np.empty(len(order), np.int32))
    place.write_order(order)
    return LoadedRowGroup(len(values), place, masks, {}, {}, {})


def rows_of(picked: list[tuple[int, int]]) -> GroupedRows:
    groups, rows = np.array(picked, np.int64).reshape(-1, 2).T
    return GroupedRows(groups.astype(np.int32), rows, None)


def decoded(
    loaded: dict[int, LoadedRowGroup], picked: list[tuple[int, int]], column: EncodedColumn = PLAIN, **limits: Any
) -> Decoded:
    field = column.sources[0].field
    missing = None if empty_column(field, 0).dtype.hasobject else np.zeros(len(picked), np.bool_)
    out = Decoded(empty_column(field, len(picked)), missing)
    cells_of(loaded, **limits).decode(column, rows_of(picked), out)
    return out


LOADED = {
    3: with_cells(pa.array([0, None, 2, 3], pa.int32())),
    5: stacked([10, 11, 12, 13], [2]),
    6: stacked([20, 21, 22, 23], [], read_order=[2, 0, 3, 1]),
    8: with_cells(pa.array([30, 31, 32, None], pa.int64())),
}
WANTED: dict[int, list[Any]] = {3: [0, None, 2, 3], 5: [10, 11, None, 13], 6: [20, 21, 22, 23], 8: [30, 31, 32, None]}


@given(st.lists(st.tuples(st.sampled_from(sorted(LOADED)), st.integers(0, 3)), min_size=1, max_size=12))
def test_cells_gathered_from_encoded_and_stacked_row_groups_decode_equally(picked: list[tuple[int, int]]) -> None:
    found = decoded(LOADED, picked)
    assert found.missing is not None
    gone = found.missing.tolist()
    values = [None if none else value for none, value in zip(gone, found.values.tolist(), strict=True)]
    assert values == [WANTED[group][row] for group, row in picked]


def test_gathered_cell_outside_the_dtype_raises_with_its_row() -> None:
    loaded = LOADED | {9: with_cells(pa.array([40, 2**40], pa.int64()))}
    with pytest.raises(DecodeError) as caught:
        decoded(loaded, [(3, 0), (5, 1), (9, 0), (6, 0), (9, 1)])
    assert (caught.value.row, caught.value.column) == (4, "x")


def test_partition_values_are_those_of_the_row_group_of_each_row() -> None:
    column = EncodedColumn.of(NUMBER, pa.array([100, 101, 102, 103], pa.int32()))
    loaded = {2: LoadedRowGroup(5, Place(0, 5, (), None), {}, {}, {}, {})}
    out = Decoded(np.zeros(3, np.int32), np.zeros(3, np.bool_))

    def in_the_next(groups: NDArray[Any], rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return groups + (rows >= 3), rows

    EncodedCells(loaded, LAYOUT, in_the_next, None).decode(column, rows_of([(2, 0), (2, 4), (2, 1)]), out)
    assert out.values.tolist() == [102, 103, 102]


def test_rows_of_a_mixture_are_decoded_by_the_codec_of_their_dataset() -> None:
    array = UnischemaField("x", np.int32, (2,), NdarrayCodec(), nullable=True)
    plain = UnischemaField("x", np.int32, (2,), nullable=True)
    column = EncodedColumn((ColumnSource(array), ColumnSource(plain)), (0, 4))
    loaded = {
        1: with_cells(pa.array([NdarrayCodec().encode(array, np.array([1, 2], np.int32))])),
        4: with_cells(pa.array([[3, 4]], pa.list_(pa.int32()))),
    }
    assert decoded(loaded, [(4, 0), (1, 0), (4, 0)], column).values.tolist() == [[3, 4], [1, 2], [3, 4]]
    assert not column.has_partition_values
    assert EncodedColumn.of(plain, pa.array([[1, 2]])).has_partition_values


FREE = UnischemaField("x", np.int16, (None, 3), NdarrayCodec(), nullable=True)
LONG, SHORT = (np.arange(3 * rows, dtype=np.int16).reshape(rows, 3) for rows in (1000, 2))


@given(data=st.data())
def test_ragged_arrays_are_decoded_from_several_row_groups(data: st.DataObject) -> None:
    like = data.draw(st.sampled_from([LONG, SHORT, SHORT[:0]]))
    kinds = [like, like, like.astype(">i2"), np.asfortranarray(like), np.concatenate([SHORT, like]), None]
    values: dict[int, list[Any]] = {}
    for group in (0, 2, 7):
        kind = data.draw(st.sampled_from(kinds))
        several = data.draw(st.booleans())
        values[group] = [data.draw(st.sampled_from(kinds)) if several else kind for _ in range(4)]
        values[group] = [None if one is None else one + one.dtype.type(n) for n, one in enumerate(values[group])]
    rows = st.tuples(st.sampled_from(sorted(values)), st.integers(0, 3))
    picked = data.draw(st.lists(rows, min_size=1, max_size=9))
    loaded = {group: with_cells(NdarrayCodec().encode_column(each, FREE)) for group, each in values.items()}
    for made, (group, row) in zip(decoded(loaded, picked, EncodedColumn.of(FREE)).values, picked, strict=True):
        wanted = values[group][row]
        if wanted is None:
            assert made is None
            continue
        assert made.dtype == np.dtype(np.int16)
        assert made.flags.c_contiguous
        assert made.flags.writeable
        np.testing.assert_array_equal(made, wanted)


def test_images_are_decoded_from_the_memory_of_their_row_groups() -> None:
    codec = CompressedImageCodec("png")
    field = UnischemaField("x", np.uint8, (None, None), codec)
    images = [np.full((2, 2 + number), number, np.uint8) for number in range(4)]
    loaded = {}
    for group in (0, 1):
        cells = pa.array([codec.encode(field, image) for image in images[2 * group :][:2]])
        loaded[group] = with_cells(cells, files={"x": byte_cells(cells, field)})
    found = decoded(loaded, [(1, 1), (0, 0), (1, 0)], EncodedColumn.of(field))
    assert all(np.array_equal(one, images[n]) for one, n in zip(found.values, (3, 0, 2), strict=True))


def test_too_large_value_raises_only_when_its_row_is_read() -> None:
    field = UnischemaField("x", np.str_)
    loaded = {0: with_cells(pa.array(["a", "x" * 100]), sizes={"x": np.array([66, 264])})}
    assert decoded(loaded, [(0, 0), (0, 0)], EncodedColumn.of(field), most=100).values.tolist() == ["a", "a"]
    with pytest.raises(DecodeError, match="max_cell_bytes") as caught:
        decoded(loaded, [(0, 0), (0, 1)], EncodedColumn.of(field), most=100)
    assert caught.value.row == 1
