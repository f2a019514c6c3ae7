"""Pytest test suite for your own codec: subclass `CodecLaws`.

A subclass defines fields and values to test.

A codec that passes all tests can be registered and used in any dataset. Needs `pip install pytest hypothesis`.
"""

from __future__ import annotations

import abc
import dataclasses
import json
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, overload

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from petastore.codecs.registry import codec_from_json, codec_of
from petastore.errors import DecodeError, EncodeError
from petastore.schema.field import BytesCodec, UnischemaField, Viewer, ViewingCodec

__all__ = ["Case", "CodecLaws", "empty_column", "read_golden", "write_golden"]

# Tests have 40 % of the examples of the active Hypothesis profile (100 by default), but at least 10.
_LAW = settings(
    deadline=None,
    max_examples=max(10, settings().max_examples * 2 // 5),
    # Subclasses inherit the tests, so one Hypothesis test runs in several classes.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
_MOST_TRUNCATIONS = 2048


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """A field to test, with values."""

    field: UnischemaField
    """A field with the codec under test."""

    values: st.SearchStrategy[Any]
    """Hypothesis strategy for values that the field accepts."""

    refused: Sequence[Any] = ()
    """Values that must raise an `EncodeError` naming the field."""


class CodecLaws(abc.ABC):
    """Base class of a pytest class that tests a codec.

    Define `cases`, `golden_folder` and `golden_values`; override `assert_same` for a lossy codec.

    Example:
        >>> class TestNdarrayCodec(CodecLaws):
        ...     def cases(self):
        ...         field = UnischemaField("xy", "int16", (2,), NdarrayCodec())
        ...         pairs = st.tuples(st.integers(-9, 9), st.integers(-9, 9))
        ...         return {"pair": Case(field, pairs.map(lambda pair: np.array(pair, "int16")))}
        ...     def golden_folder(self):
        ...         return Path("tests/golden/ndarray")
        ...     def golden_values(self, name):
        ...         return [np.array([1, 2], "int16")]
        >>> from petastore.codecs import NdarrayCodec
        >>> TestNdarrayCodec().test_decode_returns_the_encoded_value()
    """

    @abc.abstractmethod
    def cases(self) -> Mapping[str, Case]:
        """Return the cases (fields with values) to test, by name.

        There must be at least one case for each storage format of the codec.
        """

    @abc.abstractmethod
    def golden_folder(self) -> Path:
        """Return the folder of the golden files, one `<case>.arrow` for each case.

        A golden file has encoded cells, and is in version control.
        """

    @abc.abstractmethod
    def golden_values(self, name: str) -> Sequence[Any]:
        """Return the values that the golden file of a case must decode to."""

    def assert_same(self, field: UnischemaField, expected: Any, found: Any) -> None:
        """Fail unless the decoded value equals the original.

        Override this method for a lossy codec.
        """
        assert_equal_values(field, expected, found)

    @_LAW
    @given(data=st.data())
    def test_decode_returns_the_encoded_value(self, data: st.DataObject) -> None:
        """Decoding an encoded value returns an equal value of the declared type.

        Type means dtype and shape.
        """
        case = self._drawn_case(data)
        codec, value = codec_of(case.field), data.draw(case.values)
        found = codec.decode(case.field, codec.encode(case.field, value))
        assert_declared(case.field, found)
        self.assert_same(case.field, value, found)

    @_LAW
    @given(data=st.data())
    def test_decoded_array_owns_its_memory(self, data: st.DataObject) -> None:
        """A decoded array does not share memory with its cell."""
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        cell = codec.encode(case.field, data.draw(case.values))
        found = codec.decode(case.field, cell)
        if isinstance(found, np.ndarray) and isinstance(cell, bytes):
            assert not np.shares_memory(found, np.frombuffer(cell, np.uint8))

    @_LAW
    @given(data=st.data())
    def test_encode_column_equals_encode(self, data: st.DataObject) -> None:
        """`encode_column` equals `encode` for each cell; None becomes null.

        The column has the storage type of the codec.
        """
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        values = data.draw(st.lists(st.none() | case.values, max_size=6))
        column = codec.encode_column(values, case.field)
        assert column.type == codec.storage_type(case.field)
        assert column.is_null().to_pylist() == [value is None for value in values]
        cells = [None if value is None else codec.encode(case.field, value) for value in values]
        expected = pa.array(cells, column.type)
        # Arrow treats NaN as unequal to itself, so the text of the columns is compared, too.
        assert column.equals(expected) or repr(column.to_pylist()) == repr(expected.to_pylist())
        column.validate(full=True)

    @_LAW
    @given(data=st.data())
    def test_decode_column_equals_decode(self, data: st.DataObject) -> None:
        """`decode_column` equals `decode` for each cell, for whole columns and slices."""
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        column = codec.encode_column(data.draw(st.lists(case.values, min_size=1, max_size=6)), case.field)
        part = _drawn_slice(data, column)
        out = empty_column(case.field, len(part))
        codec.decode_column(part, case.field, out)
        for found, cell in zip(out, part.to_pylist(), strict=True):
            assert_declared(case.field, found)
            assert_equal_values(case.field, codec.decode(case.field, cell), found)

    @_LAW
    @given(data=st.data())
    def test_column_view_equals_decode_column(self, data: st.DataObject) -> None:
        """The zero-copy view of a column equals the decoded column.

        It has the declared dtype and shape.
        """
        case = self._drawn_case(data, _is_viewed)
        if case is not None:
            codec = codec_of(case.field)
            assert isinstance(codec, ViewingCodec)
            self._check_view(data, case, codec.viewer(case.field))

    def _check_view(self, data: st.DataObject, case: Case, view: Viewer) -> None:
        codec, field = codec_of(case.field), case.field
        values = data.draw(st.lists(st.none() | case.values, max_size=4))
        part = _drawn_slice(data, codec.encode_column(values * data.draw(st.integers(1, 3)), field))
        viewed = view(part)
        if viewed is None:
            return
        assert len(viewed) == len(part)
        assert viewed.dtype.newbyteorder("=") == field.dtype
        present = part.drop_null()
        out = empty_column(field, len(present))
        codec.decode_column(present, field, out)
        for found, shown in zip(out, viewed[part.is_valid().to_numpy(zero_copy_only=False)], strict=True):
            assert viewed.shape[1:] == found.shape
            assert_equal_values(field, found, shown)

    @_LAW
    @given(data=st.data())
    def test_decode_bytes_equals_decode_column(self, data: st.DataObject) -> None:
        """`decode_bytes` equals `decode_column`."""
        case = self._drawn_case(data, lambda field: isinstance(codec_of(field), BytesCodec))
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, BytesCodec)
        column = codec.encode_column(data.draw(st.lists(case.values, max_size=6)), field)
        in_column, apart = empty_column(field, len(column)), empty_column(field, len(column))
        codec.decode_column(column, field, in_column)
        codec.decode_bytes([np.frombuffer(cell, np.uint8) for cell in column.to_pylist()], field, apart)
        for one, other in zip(in_column, apart, strict=True):
            assert_equal_values(field, one, other)

    def test_empty_column_encodes_and_decodes(self) -> None:
        """An empty column encodes to an empty column, and decodes to no rows.

        The encoded column has the storage type of the codec.
        """
        for case in self._all_cases().values():
            codec = codec_of(case.field)
            column = codec.encode_column([], case.field)
            assert len(column) == 0
            assert column.type == codec.storage_type(case.field)
            codec.decode_column(column, case.field, empty_column(case.field, 0))

    def test_invalid_values_raise_encode_error_with_field_and_row(self) -> None:
        """Encoding None or an invalid value raises an `EncodeError` with field and row."""
        for case in self._all_cases().values():
            for value in (None, *case.refused):
                error = _refusal(codec_of(case.field).encode, case.field, value)
                assert error.column == case.field.name
            for value in case.refused:
                with_row = _refusal(codec_of(case.field).encode_column, [None, value], case.field)
                assert (with_row.column, with_row.row) == (case.field.name, 1)

    def test_codec_is_rebuilt_from_its_configuration(self) -> None:
        """The registry rebuilds an equal codec from its configuration in JSON."""
        for case in self._all_cases().values():
            codec = case.field.codec
            if codec is not None:
                configuration = json.loads(json.dumps(dict(codec.config())))
                assert codec_from_json({"id": codec.codec_id, **configuration}) == codec

    def test_equal_codecs_have_equal_hashes(self) -> None:
        """Equal codecs have equal hashes, also after pickling."""
        for case in self._all_cases().values():
            codec = codec_of(case.field)
            again = pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes
            assert again == codec
            assert hash(again) == hash(codec)
            assert codec != object()

    def test_golden_cells_decode(self) -> None:
        """Cells of the golden files decode to the expected values.

        Earlier versions of the codec wrote these cells.
        """
        for name, case in self._all_cases().items():
            column = read_golden(self.golden_folder() / f"{name}.arrow")
            values = self.golden_values(name)
            assert len(values) == len(column) > 0
            codec = codec_of(case.field)
            out = empty_column(case.field, len(column))
            codec.decode_column(column, case.field, out)
            for expected, found, cell in zip(values, out, column.to_pylist(), strict=True):
                assert_equal_values(case.field, expected, found)
                assert_equal_values(case.field, expected, codec.decode(case.field, cell))

    def test_truncated_cell_raises_or_decodes_as_declared(self) -> None:
        """A truncated cell raises a `DecodeError`, or has the declared dtype and shape."""
        for name, case in self._all_cases().items():
            for cell in read_golden(self.golden_folder() / f"{name}.arrow").to_pylist():
                if isinstance(cell, bytes):
                    step = max(1, len(cell) // _MOST_TRUNCATIONS)
                    for end in range(0, len(cell), step):
                        assert_refused_or_declared(case.field, cell[:end])

    @_LAW
    @given(data=st.data())
    def test_damaged_cell_raises_or_decodes_as_declared(self, data: st.DataObject) -> None:
        """A cell with changed bytes raises a `DecodeError`, or decodes as declared.

        In the second case, the value has the declared dtype and shape.
        """
        case = self._drawn_case(data, lambda field: pa.types.is_binary(codec_of(field).storage_type(field)))
        if case is None:
            return
        cell = codec_of(case.field).encode(case.field, data.draw(case.values))
        assume(cell)
        damaged = bytearray(cell)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(cell) - 1))] = data.draw(st.integers(0, 255))
        assert_refused_or_declared(case.field, bytes(damaged))

    def _all_cases(self) -> Mapping[str, Case]:
        cases = self.cases()
        assert cases, f"{type(self).__name__}.cases() must return at least one case, got none"
        return cases

    @overload
    def _drawn_case(self, data: st.DataObject) -> Case: ...

    @overload
    def _drawn_case(self, data: st.DataObject, fits: Callable[[UnischemaField], bool]) -> Case | None: ...

    def _drawn_case(self, data: st.DataObject, fits: Callable[[UnischemaField], bool] = lambda _: True) -> Case | None:
        """Draw a case whose field satisfies `fits`; None if no case has such a field."""
        names = sorted(name for name, case in self._all_cases().items() if fits(case.field))
        return self._all_cases()[data.draw(st.sampled_from(names))] if names else None


def _drawn_slice(data: st.DataObject, column: pa.Array) -> pa.Array:
    start = data.draw(st.integers(0, len(column)))
    return column.slice(start, data.draw(st.integers(0, len(column) - start)))


def _is_viewed(field: UnischemaField) -> bool:
    return isinstance(codec_of(field), ViewingCodec) and field.is_fixed and not field.dtype.hasobject


def empty_column(field: UnischemaField, rows: int) -> Any:
    """Return an array with this many rows for `decode_column`.

    Its values are arbitrary, so that a test notices values that are not decoded.
    """
    if not field.is_fixed or field.dtype == np.dtype(object):
        return np.full(rows, "never written", object)
    shape = (rows, *(size or 0 for size in field.shape))
    return np.ones(math.prod(shape) * field.dtype.itemsize, np.uint8).view(field.dtype).reshape(shape)


def assert_declared(field: UnischemaField, value: Any) -> None:
    """Fail unless a decoded value has the dtype and shape that its field declares."""
    if field.numpy_dtype is np.object_:
        return
    if field.is_scalar:
        kinds: dict[Any, type] = {np.str_: str, np.bytes_: bytes, Decimal: Decimal}
        assert isinstance(value, kinds.get(field.numpy_dtype, field.dtype.type)), (field, value)
        return
    assert isinstance(value, np.ndarray), (field, value)
    assert value.ndim == len(field.shape)
    assert all(wanted in (None, size) for size, wanted in zip(value.shape, field.shape, strict=True)), value.shape
    assert value.dtype.isnative
    if field.dtype == np.dtype(object):
        assert value.dtype.kind in (
            np.dtype(field.numpy_dtype if field.numpy_dtype is not Decimal else object).kind,
            "O",
        )
    else:
        assert value.dtype == field.dtype


def assert_equal_values(field: UnischemaField, expected: Any, found: Any) -> None:
    """Fail unless two values are equal; NaN equals NaN, and NaT equals NaT."""
    if field.is_scalar and field.dtype == np.dtype(object):
        assert type(expected)(found) == expected, (field, expected, found)
        return
    wanted, got = np.asarray(expected), np.asarray(found)
    assert wanted.shape == got.shape, (field, wanted.shape, got.shape)
    has_nan = wanted.dtype.kind in "fcmM" and got.dtype.kind in "fcmM"
    assert np.array_equal(wanted, got, equal_nan=has_nan), (field, expected, found)


def assert_refused_or_declared(field: UnischemaField, cell: bytes) -> None:
    """Fail unless `decode` and `decode_column` treat a damaged cell in the same way.

    Both must raise a `DecodeError`, or both must return equal values of the declared dtype and shape.
    """
    codec = codec_of(field)
    out = empty_column(field, 1)
    value, refused = _tried(lambda: codec.decode(field, cell))
    column = pa.array([cell], codec.storage_type(field))
    _, column_refused = _tried(lambda: codec.decode_column(column, field, out))
    if refused is None or column_refused is None:
        assert refused is None, (
            f"encode_column or decode_column accepts a value that encode or decode rejects: {refused}"
        )
        assert column_refused is None, (
            f"encode or decode accepts a value that encode_column or decode_column rejects: {column_refused}"
        )
        assert_declared(field, value)
        assert_equal_values(field, value, out[0])
    else:
        assert refused.column == field.name
        assert (column_refused.column, column_refused.row) == (field.name, 0)


def _tried(decode: Callable[[], Any]) -> tuple[Any, DecodeError | None]:
    try:
        return decode(), None
    except DecodeError as problem:
        return None, problem


def write_golden(path: Path, field: UnischemaField, values: Sequence[Any]) -> None:
    """Write the encoded cells of values to a golden file for `CodecLaws`.

    Run this function once, by hand, and commit the file.

    Raises:
        FileExistsError: The file exists; a golden file must never change.
    """
    column = codec_of(field).encode_column(values, field)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as opened, pa.ipc.new_file(opened, pa.schema([("cell", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["cell"]))


def read_golden(path: Path) -> pa.Array:
    """Read the cells of a golden file.

    Raises:
        AssertionError: The file does not exist. Commit it; tests never write it.
    """
    assert path.is_file(), f"the golden file {path} is missing; write it once with write_golden, and commit it"
    column = pa.ipc.open_file(path).read_all()["cell"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _refusal(encode: Callable[..., Any], *arguments: Any) -> EncodeError:
    """Return the error that a method of a codec raises for an invalid value."""
    try:
        cells = encode(*arguments)
    except EncodeError as problem:
        return problem
    raise AssertionError(f"{encode.__name__} must raise EncodeError for {arguments}, got {cells!r}")
