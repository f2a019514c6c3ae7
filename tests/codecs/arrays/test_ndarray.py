"""Tests of `NdarrayCodec`: codec laws, bytes equal to `numpy.save`, invalid headers, and zero-copy views."""

from __future__ import annotations

import io
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

from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests.bombs import npy_header
from tests.codecs import bombs_of
from tests.codecs.measured_laws import MeasuredCodecLaws

CODEC = NdarrayCodec()
NUMBERS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def saved(array: np.ndarray[Any, Any], version: tuple[int, int] | None = None) -> bytes:
    """Return the bytes that NumPy writes."""
    written = io.BytesIO()
    np.lib.format.write_array(written, array, version=version, allow_pickle=False)
    return written.getvalue()


def with_header(header: str, payload: bytes, version: bytes = b"\x01\x00") -> bytes:
    """Return a cell with a custom header text."""
    size = len(header).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + size + header.encode() + payload


def decoded(cells: Sequence[bytes], field: UnischemaField, stored: pa.DataType | None = None) -> Any:
    column = pa.array(cells, stored or pa.binary())
    out = empty_column(field, len(cells))
    CODEC.decode_column(column, field, out)
    return out


class TestNdarrayLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        numbers = {
            name: Case(
                UnischemaField(name, name, (2, None), CODEC),
                hnp.arrays(name, st.tuples(st.just(2), st.integers(0, 3))),
                [
                    np.zeros((2, 2), "S1"),
                    np.zeros((3, 2), name),
                    np.zeros(2, name),
                    [[1], [2]],
                    np.ma.zeros((2, 1), name),
                ],
            )
            for name in NUMBERS + FLOATS
        }
        return numbers | {
            "fixed": Case(
                UnischemaField("pose", "float64", (4, 4), CODEC),
                hnp.arrays("float64", (4, 4)),
                [np.zeros((4, 4), "float32"), np.zeros((4, 5))],
            ),
            "scalar": Case(UnischemaField("s", "int32", (), CODEC), hnp.arrays("int32", ()), [np.zeros(1, "int32"), 5]),
            "text": Case(
                UnischemaField("names", str, (None,), CODEC),
                # NumPy's fixed-width text drops trailing NUL characters.
                hnp.arrays(
                    "U3", st.tuples(st.integers(0, 3)), elements=st.text(max_size=3).filter(lambda t: "\0" not in t)
                ),
                [np.array(["a"], object), np.array([b"a"])],
            ),
            "bytes": Case(UnischemaField("tags", bytes, (2,), CODEC), hnp.arrays("S4", (2,)), [np.array(["a", "b"])]),
            "times": Case(
                UnischemaField("t", "datetime64[us]", (None,), CODEC),
                hnp.arrays("datetime64[us]", st.tuples(st.integers(0, 3))),
                [np.array(["2026-01-01T00:00:00.000000001"], "datetime64[ns]"), np.array([1], "timedelta64[us]")],
            ),
        }

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.arrays(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parents[1] / "golden" / "ndarray"

    def golden_values(self, name: str) -> Sequence[Any]:
        if name in NUMBERS + FLOATS:
            return [np.array([[1, 0, 3], [4, 5, 0]], name), np.zeros((2, 0), name)]
        return {
            "fixed": [np.arange(16, dtype="float64").reshape(4, 4) / 3, np.eye(4)],
            "scalar": [np.array(-7, "int32")],
            "text": [np.array(["á", "深い"]), np.array([], "U1")],
            "bytes": [np.array([b"ab", b"\xff\x01"])],
            "times": [np.array(["2026-02-28T23:59:59.999999", "NaT"], "datetime64[us]")],
        }[name]


@given(
    array=hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3)),
    fortran=st.booleans(),
)
def test_ndarray_cells_equal_numpy_save(array: np.ndarray[Any, Any], fortran: bool) -> None:
    value = np.asfortranarray(array) if fortran else array
    field = UnischemaField("a", value.dtype.newbyteorder("="), (None,) * value.ndim, CODEC)
    assert CODEC.encode(field, value) == saved(value)


@given(data=st.data())
def test_ndarray_column_of_equal_headers_decodes_like_single_cells(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(["u1", ">u2", "<i4", ">f8", "<f4", "|b1", ">c8"])))
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))
    rows = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 5)), *shape)))
    as_fortran = data.draw(st.booleans())
    cells = [saved(np.asfortranarray(row) if as_fortran else row) for row in rows]
    for declared in (shape, (None, *shape[1:])):
        field = UnischemaField("a", dtype.newbyteorder("="), declared, CODEC)
        found = decoded(cells, field)
        for value, cell, row in zip(found, cells, rows, strict=True):
            np.testing.assert_array_equal(value, CODEC.decode(field, cell))
            np.testing.assert_array_equal(value, row)
            assert value.dtype == field.dtype


@pytest.mark.parametrize(
    "stored", [pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())], ids=str
)
def test_ndarray_decodes_every_arrow_binary_type(stored: pa.DataType) -> None:
    arrays = [np.arange(3) + step for step in range(4)]
    assert decoded([saved(array) for array in arrays], UnischemaField("a", "int64", (3,), CODEC), stored).tolist() == [
        array.tolist() for array in arrays
    ]


def test_ndarray_decodes_fixed_size_binary() -> None:
    cells = [saved(np.arange(3) + step) for step in range(4)]
    field = UnischemaField("a", "int64", (3,), CODEC)
    column = pa.array(cells, pa.binary(len(cells[0]))).slice(1)
    out = np.empty((3, 3), "int64")
    CODEC.decode_column(column, field, out)
    assert out[:, 0].tolist() == [1, 2, 3]


def test_ndarray_column_with_different_headers_decodes() -> None:
    array = np.arange(6, dtype="int32").reshape(2, 3)
    cells = [saved(array), saved(np.asfortranarray(array)), saved(array, (2, 0)), saved(array.astype(">i4"))]
    assert decoded(cells, UnischemaField("a", "int32", (2, 3), CODEC)).tolist() == [array.tolist()] * 4


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_ndarray_decodes_every_npy_version(version: tuple[int, int]) -> None:
    array = np.arange(6, dtype="int32").reshape(2, 3)
    np.testing.assert_array_equal(
        CODEC.decode(UnischemaField("a", "int32", (2, 3), CODEC), saved(array, version)), array
    )


def test_ndarray_decodes_python_2_headers() -> None:
    cell = with_header(
        "{'descr': '<i4', 'fortran_order': False, 'shape': (3L,), }      \n", np.arange(3, dtype="<i4").tobytes()
    )
    assert CODEC.decode(UnischemaField("a", "int32", (3,), CODEC), cell).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1,)*9, }",
        "{'descr': '<i4', 'fortran_order': 0, 'shape': (1,), }",
        "{'descr': '<i4', 'fortran_order': False}",
        "{'descr': '<i4', 'descr': '<i4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (1,), 'more': '1'}",
        "{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<M8[parsec]', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i3', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': " + "(" * 4000 + ")" * 4000 + ", }",
        "{'descr': '<i4', 'fortran_order': False, 'shape': (" + "1," * 40 + "), }",
        "not a dict",
        "",
    ],
)
def test_ndarray_with_an_invalid_header_raises(header: str) -> None:
    field = UnischemaField("a", "int32", (None,), CODEC)
    with pytest.raises(DecodeError, match="the cell is not an array"):
        CODEC.decode(field, with_header(header, b"\0" * 4))


def test_ndarray_checks_sizes_before_allocation() -> None:
    field = UnischemaField("a", "int32", (None, None), CODEC)
    for shape in (
        "(1000000000, 1000000000)",
        f"({2**62}, 0)",
        f"({2**63},1)",
        "(9999999999999999999, 9999999999999999999)",
    ):
        with pytest.raises(DecodeError):
            CODEC.decode(
                field, with_header(f"{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}", b"\0" * 4)
            )
    with pytest.raises(DecodeError, match="would take"):
        CODEC.decode(
            UnischemaField("a", bytes, (None,), CODEC),
            with_header("{'descr': '|S999999999', 'fortran_order': False, 'shape': (0,), }", b""),
        )


def test_ndarray_with_a_long_header_raises() -> None:
    cell = with_header("{'descr': '<i4', 'fortran_order': False, 'shape': (1,), }" + " " * 20_000, b"\0" * 4)
    with pytest.raises(DecodeError, match="must have at most 10,000 bytes, got"):
        CODEC.decode(UnischemaField("a", "int32", (None,), CODEC), cell)


def test_ndarray_never_loads_pickles() -> None:
    written = io.BytesIO()
    np.save(written, np.array([{"a": 1}], object), allow_pickle=True)
    for dtype in ("int64", str):
        with pytest.raises(DecodeError):
            CODEC.decode(UnischemaField("a", dtype, (1,), CODEC), written.getvalue())


def test_ndarray_of_another_dtype_or_shape_raises_with_its_row() -> None:
    good, field = saved(np.zeros(3, "float32")), UnischemaField("a", "float32", (3,), CODEC)
    for bad in (
        saved(np.zeros(3)),
        saved(np.zeros(4, "float32")),
        saved(np.zeros((3, 1), "float32")),
        good[:-1],
        good + b"x",
        b"",
    ):
        with pytest.raises(DecodeError) as caught:
            decoded([good, bad], field)
        assert (caught.value.column, caught.value.row) == ("a", 1)
    with pytest.raises(DecodeError) as caught:
        decoded([saved(np.zeros(3))] * 2, field)
    assert caught.value.row == 0


def test_ndarray_dimension_of_zero_is_not_a_wildcard() -> None:
    field = UnischemaField("a", "float32", (0,), CODEC)
    assert CODEC.decode(field, CODEC.encode(field, np.zeros(0, "float32"))).shape == (0,)
    with pytest.raises(EncodeError, match="shape"):
        CODEC.encode(field, np.zeros(1, "float32"))


def test_ndarray_error_names_field_actual_and_declared_shape() -> None:
    field = UnischemaField("pose", "float64", (4, None), CODEC)
    with pytest.raises(EncodeError, match=r"column 'pose'.*float64.*float32"):
        CODEC.encode(field, np.zeros((4, 2), "float32"))
    with pytest.raises(EncodeError, match=r"column 'pose'.*\(4, None\).*\(2, 4\)"):
        CODEC.encode(field, np.zeros((2, 4)))


def test_ndarray_datetime_without_unit_keeps_exact_times() -> None:
    field = UnischemaField("t", "datetime64", (1,), CODEC)
    days = np.array(["2026-01-01"], "datetime64[D]")
    assert CODEC.decode(field, CODEC.encode(field, days)).dtype == "datetime64[us]"
    assert decoded([saved(days)], field)[0, 0] == np.datetime64("2026-01-01")
    with pytest.raises(DecodeError, match="exactly"):
        CODEC.decode(field, saved(np.array([1], "datetime64[ns]")))


def test_ndarray_encodes_a_stacked_array_like_its_rows() -> None:
    rows = np.arange(24, dtype=">i2").reshape(4, 2, 3)
    field = UnischemaField("a", "int16", (2, 3), CODEC)
    for stack in (rows, rows[::2], rows.astype("<i2")):
        assert CODEC.encode_column(stack, field).to_pylist() == [saved(np.ascontiguousarray(row)) for row in stack]
    with pytest.raises(EncodeError) as caught:
        CODEC.encode_column(rows.astype("int32"), field)
    assert caught.value.row == 0


def test_ndarray_decode_of_a_non_binary_column_raises() -> None:
    field = UnischemaField("a", "int16", (2, 3), CODEC)
    for column in (pa.array([1]), pa.array([None], pa.binary())):
        with pytest.raises(DecodeError):
            CODEC.decode_column(column, field, np.empty((1, 2, 3), "int16"))
    with pytest.raises(DecodeError, match="must be bytes for the field's codec"):
        CODEC.decode(field, "text")


@pytest.mark.parametrize("dtype", [object, Decimal])
def test_ndarray_rejects_fields_of_dtype_object(dtype: Any) -> None:
    with pytest.raises(SchemaError, match="NdarrayCodec"):
        UnischemaField("a", dtype, (2,), CODEC)


@pytest.mark.parametrize("codec", [NdarrayCodec(), CompressedNdarrayCodec()])
def test_ndarray_of_a_single_string_round_trips(codec: NdarrayCodec | CompressedNdarrayCodec) -> None:
    field = UnischemaField("name", str, (), codec)
    cell = codec.encode(field, np.array("深い"))
    assert codec.decode(field, cell) == "深い"
    out = np.empty(2, object)
    codec.decode_column(pa.array([cell, codec.encode(field, np.array("a"))]), field, out)
    assert out.tolist() == ["深い", "a"]


@pytest.mark.parametrize(
    ("descr", "shape"),
    [
        ("<f8", (0, 4 * 10**15)),
        ("<f8", (4 * 10**15, 0)),
        ("<f8", (0, 2**61)),
        ("|u1", (2**31, 2**31, 0)),
        ("<U1000", (0, 10**9)),
        ("|S0", (10**15, 1)),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 600])
def test_ndarray_empty_cell_with_a_huge_shape_raises(descr: str, shape: tuple[int, ...], rows: int) -> None:
    field = UnischemaField("a", np.dtype(descr).type, (None,) * len(shape), CODEC)
    cell = npy_header(descr, shape)
    with pytest.raises(DecodeError, match="too large"):
        CODEC.decode(field, cell)
    with pytest.raises(DecodeError, match="too large") as refused:
        decoded([cell] * rows, field)
    assert refused.value.row == 0


def test_ndarray_empty_cell_with_a_large_shape_decodes() -> None:
    field = UnischemaField("a", "float32", (None, None, None), CODEC)
    cell = npy_header("<f4", (0, 4000, 4000))
    assert {value.shape for value in decoded([cell] * 600, field)} == {(0, 4000, 4000)}


@given(data=st.data())
def test_ndarray_zero_copy_view_function_can_be_reused_for_other_columns(data: st.DataObject) -> None:
    field = UnischemaField("x", "int16", (2, 3), CODEC)
    view = CODEC.viewer(field)
    numbers = np.arange(6, dtype=np.int16).reshape(2, 3)
    arrays = [
        numbers, numbers + np.int16(1), np.asfortranarray(numbers), numbers.astype(">i2"), numbers.astype(np.int32),
        numbers[:1], numbers.astype(np.int8), np.zeros((2, 3, 1), np.int16), numbers.astype(np.uint16),
    ]  # fmt: skip
    kinds = [saved(array) for array in arrays] + [saved(numbers, (2, 0)), saved(numbers)[:-1], b"", bytes(140)]
    for _ in range(data.draw(st.integers(1, 6))):
        one = data.draw(st.sampled_from(kinds))
        values = data.draw(st.lists(st.one_of(st.just(one), st.sampled_from([*kinds, None])), max_size=4))
        if data.draw(st.booleans()):
            values = [one] * len(values)
        cells = pa.array([b"before", *values], pa.binary()).slice(1)
        shown = view(cells)
        alone = CODEC.viewer(field)(cells)
        assert (shown is None) == (alone is None)
        if shown is not None:
            np.testing.assert_array_equal(shown, decoded([value for value in values if value is not None], field))


@pytest.mark.parametrize("rows", [3, 1000])
def test_ndarray_zero_copy_view_is_none_when_the_last_header_differs(rows: int) -> None:
    field = UnischemaField("x", "int16", (4,), CODEC)
    view = CODEC.viewer(field)
    alike = [saved(np.full(4, row, np.int16)) for row in range(rows)]
    shown = view(pa.array(alike))
    assert shown is not None
    assert shown[:, 0].tolist() == list(range(rows))
    assert view(pa.array([*alike[:-1], saved(np.zeros((2, 2), np.int16))])) is None
    assert view(pa.array([*alike[:-1], saved(np.zeros(4, np.uint16))])) is None
