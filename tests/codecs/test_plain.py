"""Tests of `PlainCodec`: codec laws, and decoding of every Arrow type that Parquet files can have."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from petastore.codecs import PlainCodec
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.schema.arrow import field_from_arrow
from petastore.testing.codec_laws import Case, empty_column
from tests.codecs.measured_laws import MeasuredCodecLaws

PLAIN = PlainCodec()
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def decoded(column: pa.Array, field: UnischemaField) -> Any:
    out = empty_column(field, len(column))
    PLAIN.decode_column(column, field, out)
    return out


def refused(column: pa.Array, field: UnischemaField) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        decoded(column, field)
    assert caught.value.column == field.name
    return caught.value


def microseconds() -> st.SearchStrategy[Any]:
    return st.datetimes().map(lambda time: np.datetime64(time, "us"))


class TestPlainLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        scalars: dict[str, Case] = {
            name: Case(
                UnischemaField(name, name),
                hnp.from_dtype(np.dtype(name)),
                [np.iinfo(name).max + 1, np.iinfo(name).min - 1, 1.5, "1", float("nan"), [1]],
            )
            for name in INTEGERS
        }
        arrays = hnp.arrays("float32", (2, 3), elements=st.floats(width=32))
        ragged = hnp.arrays("int32", st.tuples(st.integers(0, 4)))
        boxes = hnp.arrays("uint64", st.tuples(st.integers(0, 3), st.just(2)))
        return scalars | {
            "bool": Case(UnischemaField("b", bool), st.booleans(), [2, 0.0, "True"]),
            "float16": Case(UnischemaField("f", "float16"), hnp.from_dtype(np.dtype("float16")), [1e6, 4097, "1"]),
            "float32": Case(UnischemaField("f", "float32"), hnp.from_dtype(np.dtype("float32")), [1e300, 2**24 + 1]),
            "float64": Case(UnischemaField("f", "float64"), st.floats(), [2**53 + 1, 10**400, 1j]),
            "text": Case(UnischemaField("t", str), st.text(), [b"bytes", 5, "\udc80", ["a"]]),
            "bytes": Case(UnischemaField("t", bytes), st.binary(), ["text", 5]),
            "decimal": Case(
                UnischemaField("d", Decimal),
                st.decimals(-(10**19), 10**19, places=18),
                [1.5, "1", Decimal("1e-19"), Decimal("1e20"), Decimal("NaN"), True],
            ),
            "date": Case(
                UnischemaField("d", "datetime64[D]"),
                st.dates().map(lambda date: np.datetime64(date, "D")),
                [dt.datetime(2026, 1, 1, 12), np.datetime64("NaT"), 5, np.datetime64("10000-01-01")],  # noqa: DTZ001
            ),
            "instant": Case(
                UnischemaField("d", "datetime64"),
                microseconds(),
                [np.datetime64("2026-01-01T00:00:00.000000001"), "2026-01-01", np.timedelta64(1, "s")],
            ),
            "nanoseconds": Case(
                UnischemaField("d", "datetime64[ns]"),
                st.integers(-(2**62), 2**62).map(lambda count: np.datetime64(count, "ns")),
                [np.datetime64("2500-01-01")],
            ),
            "duration": Case(
                UnischemaField("d", "timedelta64[ms]"),
                st.integers(-(2**62), 2**62).map(lambda count: np.timedelta64(count, "ms")),
                [np.timedelta64(1, "us"), np.datetime64("2026-01-01"), 3, np.timedelta64(5)],
            ),
            "matrix": Case(
                UnischemaField("m", "float32", (2, 3)),
                arrays,
                [np.zeros((2, 3), "float64"), np.zeros((3, 2), "float32"), [[1, 2, 3], [4, 5]], 5, [[None] * 3] * 2],
            ),
            "ragged": Case(
                UnischemaField("r", "int32", (None,)), ragged, [np.zeros((2, 2), "int32"), [2**31], [[1]], 7, "ab"]
            ),
            "boxes": Case(UnischemaField("x", "uint64", (None, 2)), boxes, [[[1, 2, 3]], [[1, -2]]]),
            "words": Case(
                UnischemaField("w", str, (None,)),
                st.lists(st.text(max_size=3), max_size=3).map(lambda words: np.array(words, object)),
                [["a", None], ["a", b"b"]],
            ),
        }

    def golden_folder(self) -> Path:
        return Path(__file__).parent / "golden" / "plain"

    def golden_values(self, name: str) -> Sequence[Any]:
        if name in INTEGERS:
            return [np.iinfo(name).min, 0, 7, np.iinfo(name).max]
        values: dict[str, list[Any]] = {
            "bool": [True, False],
            "float16": [np.float16(1.5), np.float16(-65504)],
            "float32": [np.float32(0.1), np.float32("inf")],
            "float64": [0.1, float("nan")],
            "text": ["", "título 深い"],
            "bytes": [b"", b"\x00\xff"],
            "decimal": [Decimal("3.7035"), Decimal("-99999999999999999999.999999999999999999")],
            "date": [np.datetime64("0001-01-01"), np.datetime64("2026-02-28")],
            "instant": [np.datetime64("2026-02-28T23:59:59.999999"), np.datetime64("1969-12-31T00:00:00.000001")],
            "nanoseconds": [np.datetime64("2026-02-28T23:59:59.999999999")],
            "duration": [np.timedelta64(-1, "ms"), np.timedelta64(86_400_000, "ms")],
            "matrix": [np.arange(6, dtype="float32").reshape(2, 3)],
            "ragged": [np.array([], "int32"), np.array([1, -2, 3], "int32")],
            "boxes": [np.zeros((0, 2), "uint64"), np.array([[1, 2**64 - 1]], "uint64")],
            "words": [np.array([], object), np.array(["a", "", "深"], object)],
        }
        return values[name]


@pytest.mark.parametrize("name", INTEGERS)
@given(data=st.data())
def test_plain_numbers_decode_equally_by_column_and_by_cell(name: str, data: st.DataObject) -> None:
    field = UnischemaField("n", name)
    stored = data.draw(
        st.sampled_from([*map(pa.type_for_alias, INTEGERS), pa.float16(), pa.float32(), pa.float64(), pa.bool_()])
    )
    elements = hnp.from_dtype(np.dtype(stored.to_pandas_dtype()))
    column = pa.array(data.draw(hnp.arrays(stored.to_pandas_dtype(), st.integers(1, 5), elements=elements)), stored)
    expect_faces_agree(column, field)


@given(data=st.data())
def test_plain_decimals_decode_equally_by_column_and_by_cell(data: st.DataObject) -> None:
    field = UnischemaField("n", data.draw(st.sampled_from([*INTEGERS, "float16", "float32", "float64", "bool"])))
    precision = data.draw(st.integers(1, 38))
    scale = data.draw(st.integers(0, precision))
    whole = st.integers(-(10**precision) + 1, 10**precision - 1)
    small = st.integers(-3, 3).map(lambda number: number * 10**scale).filter(lambda number: abs(number) < 10**precision)
    unscaled = data.draw(st.lists(whole | small, min_size=1, max_size=4))
    cells = [Decimal(f"{number}E-{scale}") for number in unscaled]  # arithmetic would round to 28 digits
    stored = data.draw(st.sampled_from([pa.decimal128(precision, scale), pa.decimal256(precision + 5, scale)]))
    expect_faces_agree(pa.array([Decimal(f"{cell:f}") for cell in cells], stored), field)


@given(data=st.data())
def test_plain_times_decode_equally_by_column_and_by_cell(data: st.DataObject) -> None:
    unit = data.draw(st.sampled_from(["s", "ms", "us", "D", "h"]))
    field = UnischemaField("t", f"datetime64[{unit}]")
    stored = data.draw(
        st.sampled_from(
            [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("us")]
        )
    )
    times = st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29))  # noqa: DTZ001 - naive is UTC
    rounded = (
        times
        | times.map(lambda time: time.replace(minute=0, second=0, microsecond=0))
        | st.just(dt.datetime(2026, 1, 1))  # noqa: DTZ001
    )
    cells = data.draw(st.lists(rounded, min_size=1, max_size=4))
    dates = pa.types.is_date(stored)
    column = pa.array([cell.date() for cell in cells] if dates else cells, pa.date32() if dates else pa.timestamp("us"))
    expect_faces_agree(column.cast(stored, safe=False), field)


def expect_faces_agree(column: pa.Array, field: UnischemaField) -> None:
    """Check that a column decodes like its cells, or raises for the row of the first cell that raises."""
    values = []
    for row, cell in enumerate(column.to_pylist()):
        try:
            values.append(PLAIN.decode(field, cell))
        except DecodeError:
            assert refused(column, field).row in (row, None)
            return
    np.testing.assert_array_equal(decoded(column, field), np.array(values, field.dtype))


def test_uint8_stored_as_short_is_range_checked() -> None:
    error = refused(pa.array([7, 255, 300, -1], pa.int16()), UnischemaField("small", "uint8"))
    assert error.row == 2
    assert "300" in str(error)


def test_unsigned_integers_of_spark_files_decode() -> None:
    for name, stored in (
        ("uint8", pa.int16()),
        ("uint16", pa.int32()),
        ("uint32", pa.int64()),
        ("uint64", pa.decimal128(20, 0)),
    ):
        top = np.iinfo(name).max
        column = PLAIN.encode_column(np.array([0, 1, top], name), UnischemaField("n", name))
        assert column.type == stored
        assert decoded(column.slice(1), UnischemaField("n", name)).tolist() == [1, top]


def test_decimal_beyond_64_bits_raises_for_uint64() -> None:
    column = pa.array([Decimal(2**64 - 1), Decimal(2**64)], pa.decimal128(20, 0))
    assert refused(column, UnischemaField("n", "uint64")).row == 1
    assert refused(pa.array([Decimal(-1)], pa.decimal128(20, 0)), UnischemaField("n", "uint64")).row == 0


def test_integers_beyond_double_precision_raise() -> None:
    field = UnischemaField("n", "float64")
    assert decoded(pa.array([2**53], pa.int64()), field).tolist() == [2.0**53]
    assert refused(pa.array([1, 2**53 + 1], pa.int64()), field).row == 1
    assert refused(pa.array([2**63 - 1], pa.int64()), field).row == 0


def test_double_decodes_to_the_nearest_float_or_raises() -> None:
    field = UnischemaField("n", "float32")
    assert decoded(pa.array([0.1, float("inf")]), field).tolist() == [np.float32(0.1), float("inf")]
    assert refused(pa.array([0.1, 1e300]), field).row == 1


def test_int96_timestamps_decode_as_microseconds() -> None:
    stored = pa.array([1_000, 2_001], pa.timestamp("ns"))
    assert decoded(stored.slice(0, 1), UnischemaField("t", "datetime64")).astype("int64").tolist() == [1]
    assert refused(stored, UnischemaField("t", "datetime64")).row == 1
    assert decoded(stored, UnischemaField("t", "datetime64[ns]")).astype("int64").tolist() == [1_000, 2_001]


def test_timestamps_outside_nanoseconds_raise() -> None:
    column = pa.array([dt.date(2000, 1, 1), dt.date(2500, 1, 1)])
    assert refused(column, UnischemaField("t", "datetime64[ns]")).row == 1


def test_timestamps_with_a_zone_decode_to_utc() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    field = UnischemaField("t", "datetime64[s]")
    column = pa.array([dt.datetime(2026, 1, 1, 2, tzinfo=zone)], pa.timestamp("s", "+02:00"))
    assert decoded(column, field)[0] == np.datetime64("2026-01-01T00:00:00")
    assert PLAIN.decode(field, column[0].as_py()) == np.datetime64("2026-01-01T00:00:00")
    assert PLAIN.encode(field, dt.datetime(2026, 1, 1, 2, tzinfo=zone)) == dt.datetime(2026, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("stored", "cell", "dtype", "value"),
    [
        (pa.time32("s"), dt.time(1, 2, 3), "timedelta64[s]", np.timedelta64(3723, "s")),
        (pa.time32("ms"), dt.time(0, 0, 1), "timedelta64[s]", np.timedelta64(1, "s")),
        (pa.time64("us"), dt.time(0, 0, 0, 7), "timedelta64[us]", np.timedelta64(7, "us")),
        (pa.time64("ns"), dt.time(0, 0, 0, 7), "timedelta64[ns]", np.timedelta64(7000, "ns")),
        (pa.duration("ms"), dt.timedelta(days=1), "timedelta64[h]", np.timedelta64(24, "h")),
        (pa.int64(), 5, "timedelta64[us]", np.timedelta64(5, "us")),
        (pa.date64(), dt.date(2026, 1, 2), "datetime64[ms]", np.datetime64("2026-01-02", "ms")),
        (pa.float16(), 1.5, "float16", np.float16(1.5)),
        (pa.float16(), 1.5, "float64", 1.5),
    ],
)
def test_decode_and_decode_column_read_every_stored_type(
    stored: pa.DataType, cell: Any, dtype: str, value: Any
) -> None:
    field = UnischemaField("t", dtype)
    assert decoded(pa.array([cell, cell], stored).slice(1), field)[0] == value
    assert PLAIN.decode(field, cell) == value


TEXTS = ["", "a", "título 深い", "a"]


@pytest.mark.parametrize(
    "stored",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.binary(),
        pa.binary_view(),
    ],
    ids=str,
)
def test_text_of_every_arrow_type_decodes(stored: pa.DataType) -> None:
    as_bytes = [text.encode() for text in TEXTS]
    binary = pa.types.is_binary(stored) or pa.types.is_binary_view(stored)
    column = pa.array(as_bytes if binary else TEXTS, stored).slice(1)
    assert decoded(column, UnischemaField("t", str)).tolist() == TEXTS[1:]
    assert decoded(column, UnischemaField("t", bytes)).tolist() == as_bytes[1:]


@pytest.mark.parametrize(
    "stored", [pa.large_binary(), pa.binary(2), pa.dictionary(pa.uint16(), pa.large_binary())], ids=str
)
def test_bytes_of_every_arrow_type_decode(stored: pa.DataType) -> None:
    assert decoded(pa.array([b"ab", b"\xff\x00", b"ab"], stored).slice(1), UnischemaField("t", bytes)).tolist() == [
        b"\xff\x00",
        b"ab",
    ]


def test_invalid_utf8_raises_with_its_row() -> None:
    field = UnischemaField("t", str)
    broken = pa.array([b"ok", b"\xff"], pa.binary())
    assert refused(broken, field).row == 1
    # Parquet files may contain text that is not UTF-8, because pyarrow does not validate it.
    unchecked = pa.Array.from_buffers(pa.string(), 2, broken.buffers())
    assert refused(unchecked, field).row == 1


def test_dictionary_column_decodes_only_used_values() -> None:
    field = UnischemaField("n", "uint8")
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, 0], pa.int8()), pa.array([7, 300, 9], pa.int16()))
    assert decoded(column, field).tolist() == [7, 9, 7]
    used = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([7, 300], pa.int16()))
    assert refused(used, field).row == 1


def test_run_end_encoded_columns_decode() -> None:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, 6], pa.int32()))
    assert decoded(column, UnischemaField("n", "int32")).tolist() == [5, 5, 6]


def test_null_raises_with_its_row() -> None:
    assert refused(pa.array([1, None, 2]), UnischemaField("n", "int64")).row == 1
    assert refused(pa.array([[1], None]), UnischemaField("n", "int64", (None,))).row == 1


def test_null_inside_a_list_is_masked_and_a_null_inner_list_is_none() -> None:
    one, _, masked = decoded(pa.array([[1, 2], [], [2**60 + 1, None]]), UnischemaField("n", "int64", (None,)))
    assert type(one) is np.ndarray
    assert (masked.dtype, masked.tolist()) == (np.int64, [2**60 + 1, None])
    assert np.isnan(decoded(pa.array([[0.5, None]]), UnischemaField("x", "float64", (None,)))[0].data[1])
    (lists,) = decoded(pa.array([[[2], None]]), UnischemaField("n", "int64", (None, None)))
    assert (lists.dtype, lists[0].tolist(), lists[1]) == (object, [2], None)


def test_null_in_a_fixed_shape_array_raises_unless_the_output_is_masked() -> None:
    field, cells = UnischemaField("n", "int64", (2,)), pa.array([[1, 2], [3, None]])
    assert refused(cells, field).row == 1
    out = np.ma.MaskedArray(np.empty((2, 2), np.int64), np.zeros((2, 2), np.bool_))
    PLAIN.decode_column(cells, field, out)
    assert out.tolist() == [[1, 2], [3, None]]


@pytest.mark.parametrize(
    ("column", "field"),
    [
        (pa.array(["5"]), UnischemaField("n", "int32")),
        (pa.array([5]), UnischemaField("n", str)),
        (pa.array([5]), UnischemaField("n", bytes)),
        (pa.array([5.0]), UnischemaField("n", Decimal)),
        (pa.array([5]), UnischemaField("n", "datetime64[us]")),
        (pa.array([dt.time(1)]), UnischemaField("n", "datetime64[us]")),
        (pa.array([dt.date(2026, 1, 1)]), UnischemaField("n", "int64")),
        (pa.array([5]), UnischemaField("n", "int64", (1,))),
        (pa.array([[5]]), UnischemaField("n", "int64", (1, 1))),
        (pa.array([[5]]), UnischemaField("n", "int64")),
        (pa.array([Decimal(1)]), UnischemaField("n", bool)),
    ],
    ids=lambda item: str(getattr(item, "type", item)),
)
def test_plain_codec_raises_for_a_column_of_an_incompatible_type(column: pa.Array, field: UnischemaField) -> None:
    refused(column, field)


@pytest.mark.parametrize(
    "stored",
    [
        pa.list_(pa.int16()),
        pa.large_list(pa.int16()),
        pa.list_(pa.int16(), 2),
        pa.list_view(pa.int16()),
        pa.large_list_view(pa.int16()),
    ],
    ids=str,
)
def test_lists_of_every_arrow_type_decode_to_one_array(stored: pa.DataType) -> None:
    column = pa.array([[9, 9], [1, 2], [3, 4]], stored).slice(1)
    fixed = decoded(column, UnischemaField("xy", "uint8", (2,)))
    assert fixed.dtype == np.uint8
    assert fixed.tolist() == [[1, 2], [3, 4]]
    free = decoded(column, UnischemaField("xy", "int16", (None,)))
    assert [value.tolist() for value in free] == [[1, 2], [3, 4]]


def test_lists_decode_into_a_slice_of_a_larger_array() -> None:
    whole = np.zeros((2, 4), "int64")
    PLAIN.decode_column(pa.array([[1, 2], [3, 4]]), UnischemaField("xy", "int64", (2,)), whole[:, 1:3])
    assert whole.tolist() == [[0, 1, 2, 0], [0, 3, 4, 0]]


def test_list_of_another_length_raises_with_its_row() -> None:
    assert refused(pa.array([[1, 2], [3]]), UnischemaField("xy", "int64", (2,))).row == 1
    assert refused(pa.array([[[1, 2]], [[3, 4], [5, 6]]]), UnischemaField("xy", "int64", (1, 2))).row == 1


def test_number_out_of_range_in_a_list_raises_with_its_row() -> None:
    assert refused(pa.array([[1, 2], [], [3, 300]]), UnischemaField("xy", "uint8", (None,))).row == 2
    assert refused(pa.array([[[1], [2]], [[3], [300]]]), UnischemaField("xy", "uint8", (2, 1))).row == 1


def test_ragged_nested_list_is_an_object_array_or_raises_for_a_fixed_size() -> None:
    field = UnischemaField("m", "int64", (None, None))
    values = decoded(pa.array([[[1, 2], [3, 4]], [], [[5]], [[], []]]), field)
    assert [value.tolist() for value in values] == [[[1, 2], [3, 4]], [], [[5]], [[], []]]
    assert [value.shape for value in values] == [(2, 2), (0, 0), (1, 1), (2, 0)]
    for lists in (decoded(pa.array([[[1, 2], [3]]]), field)[0], PLAIN.decode(field, [[1, 2], [3]])):
        assert (lists.dtype, [value.tolist() for value in lists]) == (object, [[1, 2], [3]])
    ragged = pa.array([[[1]], [[1, 2], [3]]])
    for shape in ((2, 2), (None, 1), (1, None)):
        assert refused(ragged, UnischemaField("m", "int64", shape)).row == 1


def test_fixed_shape_tensor_column_decodes_to_an_array() -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype="float32").reshape(2, 2, 3))
    field = field_from_arrow(pa.field("t", tensors.type))
    assert field.shape == (2, 3)
    np.testing.assert_array_equal(decoded(tensors.slice(1), field), np.arange(6, 12).reshape(1, 2, 3))
    refused(tensors, UnischemaField("t", "float32", (6,)))


def test_structs_and_maps_decode_to_python_objects() -> None:
    rows = [{"a": 1, "b": ["x"]}, {"a": 2, "b": []}]
    assert decoded(pa.array(rows), UnischemaField("s", object)).tolist() == rows
    lists = pa.array([rows, []])
    assert decoded(lists, UnischemaField("s", object)).tolist() == [rows, []]
    maps = pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))
    assert decoded(maps, UnischemaField("s", object)).tolist() == [[("k", 1)]]


def test_object_field_without_a_codec_raises_when_written() -> None:
    with pytest.raises(SchemaError, match="codec"):
        PLAIN.encode_column([{"a": 1}], UnischemaField("s", object))


def test_masked_arrays_and_none_become_null() -> None:
    field = UnischemaField("n", "uint8", nullable=True)
    masked = np.ma.MaskedArray(np.array([1, 2, 3], "uint8"), [False, True, False])
    assert PLAIN.encode_column(masked, field).to_pylist() == [1, None, 3]
    assert PLAIN.encode_column([None, np.uint8(2), None], field).to_pylist() == [None, 2, None]
    assert PLAIN.encode_column([None, "a"], UnischemaField("t", str)).to_pylist() == [None, "a"]


@pytest.mark.parametrize("bad", [300, -1, 1.5, "1", None])
def test_invalid_scalar_raises_with_its_row_when_encoded(bad: Any) -> None:
    field = UnischemaField("n", "uint8")
    if bad is None:
        assert PLAIN.encode_column([1, bad], field).null_count == 1
        return
    with pytest.raises(EncodeError) as caught:
        PLAIN.encode_column([1, 2, bad], field)
    assert (caught.value.column, caught.value.row) == ("n", 2)


def test_numbers_of_other_types_encode_if_equal_in_the_field_dtype() -> None:
    field = UnischemaField("n", "uint8")
    mixed = [True, np.int64(2), 3.0, Decimal(4), np.float16(5), np.array(6)]
    assert PLAIN.encode_column(mixed, field).to_pylist() == [1, 2, 3, 4, 5, 6]
    assert PLAIN.encode_column(np.array([1.0, 2.0]), field).to_pylist() == [1, 2]


def test_stacked_array_encodes_like_a_list_of_rows() -> None:
    field = UnischemaField("m", "uint16", (2, 2))
    rows = np.arange(12, dtype="uint16").reshape(3, 2, 2)
    assert PLAIN.encode_column(rows, field).to_pylist() == rows.tolist()
    assert PLAIN.encode_column(rows[::2], field).to_pylist() == rows[::2].tolist()
    with pytest.raises(EncodeError, match="shape"):
        PLAIN.encode_column(np.zeros((3, 2), "uint16"), field)


def test_plain_codec_given_to_a_field_raises() -> None:
    with pytest.raises(
        SchemaError, match="field 'n': codec must be None to store values in their natural type, got PlainCodec"
    ):
        UnischemaField("n", "int32", (), PLAIN)
