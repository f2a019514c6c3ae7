"""The laws that a codec keeps: subclass `CodecLaws`, say what to test, and pytest runs all of them.

A codec that keeps these laws can be registered and used in any dataset. The laws need `pip install pytest hypothesis`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import math
import pickle
import struct
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
from petastore.schema.codec import AlikeCodec, BytesCodec, MeasuringCodec, ViewingCodec
from petastore.schema.field import UnischemaField
from petastore.testing.memory import grown_in_child

__all__ = ["Case", "CodecLaws", "empty_column", "read_golden", "write_golden"]

# Of the profile that is loaded, which has 100 examples by default.
_LAW = settings(
    deadline=None,
    max_examples=max(10, settings().max_examples * 2 // 5),
    # The laws are inherited, so one test runs on several classes; that is the point.
    suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow],
)
_MOST_TRUNCATIONS = 2048

_FEW = settings(_LAW, max_examples=max(3, settings().max_examples * 3 // 20))

_MOST_DECODED_BYTES = 48 * 1024 * 1024
"""Cells that say that they become larger are not decoded: readers refuse them."""

_OTHER_BYTES = 24 * 1024 * 1024
"""What decoding may take for anything but values: libraries that are loaded, and memory that allocators keep."""

_LIES = [
    struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q", "<H", ">H") for number in (2**15, 2**16 - 1)
] + [struct.pack(form, number) for form in ("<I", ">I", "<Q", ">Q") for number in (2**20, 2**26, 2**31 - 1, 2**32 - 1)]
"""Large numbers as headers have them."""


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One field to test, and what goes into it."""

    field: UnischemaField
    """A field with the codec under test."""

    values: st.SearchStrategy[Any]
    """Values that the field takes."""

    refused: Sequence[Any] = ()
    """Values that must be refused with an `EncodeError` that names the field."""


class CodecLaws(abc.ABC):
    """Laws of a codec, to be inherited by a test class.

    Implement `cases`, `golden_folder` and `golden_values`; override `assert_same` where a codec is lossy.

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
        >>> TestNdarrayCodec().test_a_value_comes_back()
    """

    @abc.abstractmethod
    def cases(self) -> Mapping[str, Case]:
        """The cases by name, at least one for each way in which the codec stores values."""

    @abc.abstractmethod
    def golden_folder(self) -> Path:
        """Where the committed cells lie, one file `<case>.arrow` for each case, as `write_golden` writes it."""

    @abc.abstractmethod
    def golden_values(self, name: str) -> Sequence[Any]:
        """The values that the committed cells of a case decode to."""

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any] | None:  # noqa: ARG002 - for who overrides it
        """Cells of a few bytes that hold, or say that they hold, very much; the codec's own knowledge of its format.

        None tests with cells in which some bytes were replaced by large numbers. Only codecs that measure
        (`petastore.schema.codec.MeasuringCodec`) are tested.
        """
        return None

    def assert_same(self, field: UnischemaField, expected: Any, found: Any) -> None:
        """Fail unless a value came back as it was; override it for a codec that is lossy."""
        assert_equal_values(field, expected, found)

    @_LAW
    @given(data=st.data())
    def test_a_value_comes_back(self, data: st.DataObject) -> None:
        """Decoding what was encoded gives the value, of the declared dtype and shape."""
        case = self._drawn_case(data)
        codec, value = codec_of(case.field), data.draw(case.values)
        found = codec.decode(case.field, codec.encode(case.field, value))
        assert_declared(case.field, found)
        self.assert_same(case.field, value, found)

    @_LAW
    @given(data=st.data())
    def test_a_decoded_value_owns_its_memory(self, data: st.DataObject) -> None:
        """A decoded array is no view of the cell."""
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        cell = codec.encode(case.field, data.draw(case.values))
        found = codec.decode(case.field, cell)
        if isinstance(found, np.ndarray) and isinstance(cell, bytes):
            assert not np.shares_memory(found, np.frombuffer(cell, np.uint8))

    @_LAW
    @given(data=st.data())
    def test_the_column_face_encodes_as_the_cell_face(self, data: st.DataObject) -> None:
        """A column is what its cells are, of the storage type; None is null."""
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        values = data.draw(st.lists(st.none() | case.values, max_size=6))
        column = codec.encode_column(values, case.field)
        assert column.type == codec.storage_type(case.field)
        assert column.is_null().to_pylist() == [value is None for value in values]
        cells = [None if value is None else codec.encode(case.field, value) for value in values]
        expected = pa.array(cells, column.type)
        # To Arrow a NaN is not equal to itself.
        assert column.equals(expected) or repr(column.to_pylist()) == repr(expected.to_pylist())
        column.validate(full=True)

    @_LAW
    @given(data=st.data())
    def test_the_column_face_decodes_as_the_cell_face(self, data: st.DataObject) -> None:
        """Each row of a decoded column is its decoded cell, whole columns and slices of them alike."""
        case = self._drawn_case(data)
        codec = codec_of(case.field)
        column = codec.encode_column(data.draw(st.lists(case.values, min_size=1, max_size=6)), case.field)
        start = data.draw(st.integers(0, len(column)))
        part = column.slice(start, data.draw(st.integers(0, len(column) - start)))
        out = empty_column(case.field, len(part))
        codec.decode_column(part, case.field, out)
        for found, cell in zip(out, part.to_pylist(), strict=True):
            assert_declared(case.field, found)
            assert_equal_values(case.field, codec.decode(case.field, cell), found)

    @_LAW
    @given(data=st.data())
    def test_the_viewing_face_shows_what_the_column_face_decodes(self, data: st.DataObject) -> None:
        """A viewed column holds the decoded values where cells are, of one dtype and the declared shape."""
        case = self._drawn_case(data, _is_viewed)
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, ViewingCodec)
        column = codec.encode_column(data.draw(st.lists(st.none() | case.values, max_size=6)), field)
        start = data.draw(st.integers(0, len(column)))
        part = column.slice(start, data.draw(st.integers(0, len(column) - start)))
        viewed = codec.viewer(field)(part)
        if viewed is None:
            return
        assert viewed.shape == (len(part), *field.shape)
        assert viewed.dtype.newbyteorder("=") == field.dtype
        present = part.drop_null()
        out = empty_column(field, len(present))
        codec.decode_column(present, field, out)
        for found, shown in zip(out, viewed[part.is_valid().to_numpy(zero_copy_only=False)], strict=True):
            assert_equal_values(field, found, shown)

    @_LAW
    @given(data=st.data())
    def test_what_sees_a_column_of_one_free_shape_shows_what_the_column_face_decodes(self, data: st.DataObject) -> None:
        """What is seen has the decoded values, of one dtype and of a shape that the field allows."""
        case = self._drawn_case(data, _is_viewed_where_alike)
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, AlikeCodec)
        values = data.draw(st.lists(st.none() | case.values, max_size=4))
        column = codec.encode_column(values * data.draw(st.integers(1, 3)), field)
        start = data.draw(st.integers(0, len(column)))
        part = column.slice(start, data.draw(st.integers(0, len(column) - start)))
        viewed = codec.alike_viewer(field)(part)
        if viewed is None:
            return
        assert part.null_count == 0
        assert viewed.dtype.newbyteorder("=") == field.dtype
        out = empty_column(field, len(part))
        codec.decode_column(part, field, out)
        for found, shown in zip(out, viewed, strict=True):
            assert_declared(field, shown.astype(field.dtype))
            assert_equal_values(field, found, shown)

    @_LAW
    @given(data=st.data())
    def test_the_bytes_face_decodes_as_the_column_face(self, data: st.DataObject) -> None:
        """Cells that are files give the same wherever they lie."""
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

    def test_an_empty_column_is_a_column(self) -> None:
        """No rows encode to no cells of the storage type, and decode to no rows."""
        for case in self._all_cases().values():
            codec = codec_of(case.field)
            column = codec.encode_column([], case.field)
            assert len(column) == 0
            assert column.type == codec.storage_type(case.field)
            codec.decode_column(column, case.field, empty_column(case.field, 0))

    def test_none_and_refused_values_are_refused_by_name(self) -> None:
        """Encoding None, or what the field does not take, is an `EncodeError` that names field and row."""
        for case in self._all_cases().values():
            for value in (None, *case.refused):
                error = _refusal(case.field, value)
                assert error.column == case.field.name
            for value in case.refused:
                with_row = _column_refusal(case.field, [None, value])
                assert (with_row.column, with_row.row) == (case.field.name, 1)

    def test_a_codec_is_rebuilt_from_its_configuration(self) -> None:
        """The configuration survives JSON, and the registry builds an equal codec from it."""
        for case in self._all_cases().values():
            codec = case.field.codec
            if codec is not None:
                configuration = json.loads(json.dumps(dict(codec.config())))
                assert codec_from_json({"id": codec.codec_id, **configuration}) == codec

    def test_a_codec_is_a_value(self) -> None:
        """Equal codecs have equal hashes; a pickled codec comes back equal."""
        for case in self._all_cases().values():
            codec = codec_of(case.field)
            again = pickle.loads(pickle.dumps(codec))  # noqa: S301 - our own bytes
            assert again == codec
            assert hash(again) == hash(codec)
            assert codec != object()

    def test_golden_cells_still_decode(self) -> None:
        """Cells that were once written are read forever: the committed ones are there, and give their values."""
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

    def test_a_truncated_cell_is_refused_or_a_value(self) -> None:
        """A cell cut anywhere gives a `DecodeError`, or a value as declared; never anything else."""
        for name, case in self._all_cases().items():
            for cell in read_golden(self.golden_folder() / f"{name}.arrow").to_pylist():
                if isinstance(cell, bytes):
                    step = max(1, len(cell) // _MOST_TRUNCATIONS)
                    for end in range(0, len(cell), step):
                        assert_refused_or_declared(case.field, cell[:end])

    @_LAW
    @given(data=st.data())
    def test_a_damaged_cell_is_refused_or_a_value(self, data: st.DataObject) -> None:
        """A cell with changed bytes gives a `DecodeError`, or a value as declared; never anything else."""
        case = self._drawn_case(data, lambda field: pa.types.is_binary(codec_of(field).storage_type(field)))
        if case is None:
            return
        cell = codec_of(case.field).encode(case.field, data.draw(case.values))
        assume(cell)
        damaged = bytearray(cell)
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.integers(0, len(cell) - 1))] = data.draw(st.integers(0, 255))
        assert_refused_or_declared(case.field, bytes(damaged))

    @_FEW
    @given(data=st.data())
    def test_a_cell_takes_no_more_memory_than_it_says(self, data: st.DataObject) -> None:
        """Measuring takes none for values; decoding takes what was measured and twice as much besides, at most."""
        case = self._drawn_case(data, lambda field: isinstance(codec_of(field), MeasuringCodec))
        if case is None:
            return
        codec, field = codec_of(case.field), case.field
        assert isinstance(codec, MeasuringCodec)
        honest, bombs = codec.encode(field, data.draw(case.values)), self.bombs(field)
        codec.decode(field, honest)  # what a codec loads once is not counted
        cell = data.draw(_lying(honest) if bombs is None else bombs | _lying(honest))
        column = pa.array([cell], codec.storage_type(field))
        (said, measuring, refused), grown = grown_in_child(functools.partial(_measured, codec, cell, column, field))
        stored = _OTHER_BYTES + 4 * column.nbytes
        assert measuring <= stored, f"measuring took {measuring:,} bytes"
        assert set(refused) <= {"", "DecodeError"}, refused
        assert not refused or grown <= 3 * said + stored, f"the cell says {said:,} bytes, and it took {grown:,}"

    def _all_cases(self) -> Mapping[str, Case]:
        cases = self.cases()
        assert cases, f"{type(self).__name__}.cases() gives none, so nothing would be tested"
        return cases

    @overload
    def _drawn_case(self, data: st.DataObject) -> Case: ...

    @overload
    def _drawn_case(self, data: st.DataObject, fits: Callable[[UnischemaField], bool]) -> Case | None: ...

    def _drawn_case(self, data: st.DataObject, fits: Callable[[UnischemaField], bool] = lambda _: True) -> Case | None:
        """Draw one of the cases whose fields fit; None if the law is not about any of them."""
        names = sorted(name for name, case in self._all_cases().items() if fits(case.field))
        return self._all_cases()[data.draw(st.sampled_from(names))] if names else None


def _is_viewed(field: UnischemaField) -> bool:
    return isinstance(codec_of(field), ViewingCodec) and field.is_fixed and not field.dtype.hasobject


def _is_viewed_where_alike(field: UnischemaField) -> bool:
    return isinstance(codec_of(field), AlikeCodec) and not field.is_fixed and not field.dtype.hasobject


def empty_column(field: UnischemaField, rows: int) -> Any:
    """The array that `decode_column` fills for so many rows, with something else in it."""
    if not field.is_fixed or field.dtype == np.dtype(object):
        return np.full(rows, "never written", object)
    shape = (rows, *(size or 0 for size in field.shape))
    return np.ones(math.prod(shape) * field.dtype.itemsize, np.uint8).view(field.dtype).reshape(shape)


@st.composite
def _lying(draw: st.DrawFn, cell: Any) -> Any:
    """The cell with large numbers in some places, most of them near the beginning or the end, where sizes stand."""
    if not isinstance(cell, bytes) or not cell:
        return cell
    lying = bytearray(cell)
    for _ in range(draw(st.integers(1, 3))):
        lie = draw(st.sampled_from(_LIES))
        at = draw(st.integers(-min(len(cell), 64), min(len(cell), 96) - 1)) % len(cell)
        lying[at : at + len(lie)] = lie
    return bytes(lying)


def _measured(
    codec: MeasuringCodec, cell: Any, column: Any, field: UnischemaField, growth: Callable[[], int]
) -> tuple[int | None, int, list[str]]:
    """What a cell says that it takes, what asking it took, and how both faces refused it, if it was not too large."""
    sizes = codec.decoded_sizes(column, field)
    said, measuring = field.decoded_bytes if sizes is None else int(sizes[0]), growth()
    if said is None or said > _MOST_DECODED_BYTES:
        return said, measuring, []
    faces = (lambda: codec.decode(field, cell), lambda: codec.decode_column(column, field, empty_column(field, 1)))
    return said, measuring, [_refused(face) for face in faces]


def _refused(decode: Callable[[], object]) -> str:
    try:
        decode()
    except Exception as problem:  # noqa: BLE001 - which one it is, is the question
        return type(problem).__name__
    return ""


def assert_declared(field: UnischemaField, value: Any) -> None:
    """Fail unless a decoded value is of the dtype and shape that its field declares."""
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
    """Fail unless both faces refuse a cell with a `DecodeError`, or both take it as a value of the declared kind."""
    codec = codec_of(field)
    out = empty_column(field, 1)
    value, refused = _tried(lambda: codec.decode(field, cell))
    column = pa.array([cell], codec.storage_type(field))
    _, column_refused = _tried(lambda: codec.decode_column(column, field, out))
    if refused is None or column_refused is None:
        assert refused is None, f"the column face takes what the cell face refuses: {refused}"
        assert column_refused is None, f"the cell face takes what the column face refuses: {column_refused}"
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
    """Write the cells of values where `CodecLaws` reads them. Run it once, by hand, and commit the file.

    Raises:
        FileExistsError: The file is there; what was once written must not change.
    """
    column = codec_of(field).encode_column(values, field)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as opened, pa.ipc.new_file(opened, pa.schema([("cell", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["cell"]))


def read_golden(path: Path) -> pa.Array:
    """The cells in a golden file.

    Raises:
        AssertionError: There is no file: goldens are committed, never made by a test.
    """
    assert path.is_file(), f"the golden file {path} is missing; write it once with write_golden, and commit it"
    column = pa.ipc.open_file(path).read_all()["cell"].combine_chunks()
    return column.chunk(0) if isinstance(column, pa.ChunkedArray) else column


def _refusal(field: UnischemaField, value: Any) -> EncodeError:
    try:
        cell = codec_of(field).encode(field, value)
    except EncodeError as problem:
        return problem
    raise AssertionError(f"{field!r} took {value!r} and made {cell!r} of it")


def _column_refusal(field: UnischemaField, values: Sequence[Any]) -> EncodeError:
    try:
        column = codec_of(field).encode_column(values, field)
    except EncodeError as problem:
        return problem
    raise AssertionError(f"{field!r} took {values!r} and made {column!r} of them")
