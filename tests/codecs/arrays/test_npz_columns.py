"""Tests of columns of `.npz` cells: the same values or the same error as cell by cell."""

from __future__ import annotations

import contextlib
import io
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.codecs import CompressedNdarrayCodec
from petastore.codecs.arrays import compressed
from petastore.codecs.arrays.compressed import NpzError, member_of, zlib_library
from petastore.errors import DecodeError
from petastore.schema import UnischemaField
from tests.warm_interpreters import WarmInterpreter

CODEC = CompressedNdarrayCodec()
FIXED = UnischemaField("x", "int16", (3, 4), CODEC)
FREE = UnischemaField("x", "int16", (None, None), CODEC)
SCALAR = UnischemaField("x", "int16", (), CODEC)
TIMES = UnischemaField("x", "datetime64[s]", (2,), CODEC)
TEXTS = UnischemaField("x", str, (), CODEC)
RANDOM = np.random.default_rng(3)


class Pipe(io.RawIOBase):
    """Write-only stream without `seek`, so that zipfile stores sizes after the data."""

    def __init__(self, target: io.BytesIO) -> None:
        self.target = target

    def write(self, content: Any) -> int:
        return self.target.write(content)

    def writable(self) -> bool:
        return True


def by_numpy(array: NDArray[Any]) -> bytes:
    written = io.BytesIO()
    np.savez_compressed(written, arr=array)
    return written.getvalue()


def stored(array: NDArray[Any]) -> bytes:
    written = io.BytesIO()
    np.savez(written, arr=array)
    return written.getvalue()


def two_members(array: NDArray[Any]) -> bytes:
    written = io.BytesIO()
    np.savez_compressed(written, arr=array, other=array)
    return written.getvalue()


def npy(array: NDArray[Any]) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


def zipped(content: bytes, *, streamed: bool = False, comment: bytes = b"", name: str = "arr.npy") -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(Pipe(written) if streamed else written, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.comment = comment
        opened.writestr(zipfile.ZipInfo(name, (2020, 1, 2, 3, 4, 6)), content, zipfile.ZIP_DEFLATED)
    return written.getvalue()


def changed(cell: bytes, at: int, by: int = 1) -> bytes:
    damaged = bytearray(cell)
    damaged[at % len(cell)] ^= by
    return bytes(damaged)


def slack_after_the_stream(array: NDArray[Any]) -> bytes:
    """Return an archive with extra bytes after the deflate stream of its member, which zlib ignores."""
    content = npy(array)
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = deflater.compress(content) + deflater.flush() + b"slack"
    head = bytearray(zipped(content)[:37])
    head[18:22] = len(deflated).to_bytes(4, "little")
    return bytes(head) + deflated + bytes(80)


WRITERS: dict[str, Callable[[NDArray[Any]], bytes]] = {
    "numpy": by_numpy,
    "stored": stored,
    "two members": two_members,
    "no zip64": lambda array: zipped(npy(array)),
    "streamed": lambda array: zipped(npy(array), streamed=True),
    "comment": lambda array: zipped(npy(array), comment=b"why" * 30),
    "long comment": lambda array: zipped(npy(array), comment=bytes(65_500)),
    "another name": lambda array: zipped(npy(array), name="abc.npy"),
    "extra bytes": lambda array: by_numpy(array) + b"extra" * 9,
    "more elements": lambda array: zipped(npy(array) + b"more"),
    "nothing": lambda array: zipped(npy(array)[:0]),
    "slack": slack_after_the_stream,
    "truncated": lambda array: by_numpy(array)[:-60],
    "truncated in its stream": lambda array: by_numpy(array)[:80],
    "truncated in its header": lambda array: by_numpy(array)[:40],
    "empty": lambda array: by_numpy(array)[:0],
    "wrong checksum": lambda array: changed(by_numpy(array), 14),
    "wrong size": lambda array: changed(by_numpy(array), 41),
    "huge size": lambda array: changed(by_numpy(array), 47),
    "wrong stored size": lambda array: changed(by_numpy(array), 49),
    "huge stored size": lambda array: changed(by_numpy(array), 55),
    "encrypted": lambda array: changed(by_numpy(array), 6),
    "damaged": lambda array: changed(by_numpy(array), 60, 255),
}

ARRAYS: dict[str, Callable[[], NDArray[Any]]] = {
    "as declared": lambda: RANDOM.integers(-99, 99, (3, 4), np.int16),
    "zeros": lambda: np.zeros((3, 4), np.int16),
    "fortran": lambda: np.asfortranarray(RANDOM.integers(-99, 99, (3, 4), np.int16)),
    "big-endian": lambda: RANDOM.integers(-99, 99, (3, 4), np.int16).astype(">i2"),
    "another dtype": lambda: np.zeros((3, 4), np.float32),
    "another shape": lambda: RANDOM.integers(-99, 99, (4, 2), np.int16),
    "no rows": lambda: np.zeros((0, 4), np.int16),
    "flat": lambda: np.zeros(12, np.int16),
    "scalar": lambda: np.array(-7, np.int16),
    "seconds": lambda: np.array([1, "NaT"], "datetime64[s]"),
    "milliseconds": lambda: np.array([1000, 2000], "datetime64[ms]"),
    "text": lambda: np.array("深い"),
    "object": lambda: np.array([{"a": 1}], object),
}

libraries = st.sampled_from([zlib, zlib_library()])
alike = st.tuples(st.just("numpy"), st.sampled_from(["as declared", "zeros"]))
any_cell = st.tuples(st.sampled_from(sorted(WRITERS)), st.sampled_from(sorted(ARRAYS)))
cells_of = st.one_of(
    st.lists(alike, max_size=8),
    st.lists(st.tuples(st.sampled_from(sorted(WRITERS)), st.just("as declared")), max_size=8),
    st.lists(st.tuples(st.sampled_from(["numpy", "no zip64"]), st.sampled_from(sorted(ARRAYS))), max_size=8),
    st.lists(any_cell, max_size=8),
    any_cell.flatmap(lambda kind: st.lists(st.just(kind), max_size=4)),
    st.builds(lambda most, odd, at: [*most[:at], odd, *most[at:]], st.lists(alike), any_cell, st.integers(0, 5)),
)


def outcome(decode: Callable[[], list[Any]]) -> Any:
    """Return comparable values, or the row and message of the error."""
    try:
        return [(value.dtype, value.shape, value.tobytes()) for value in map(np.asarray, decode())]
    except DecodeError as problem:
        return problem.row, str(problem)


def one_by_one(cells: Sequence[bytes], field: UnischemaField) -> list[Any]:
    values = []
    for row, cell in enumerate(cells):
        try:
            values.append(CODEC.decode(field, cell))
        except DecodeError as problem:
            raise problem.at(row=row) from None
    return values


@contextlib.contextmanager
def inflating_by(library: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(compressed, "zlib_library", lambda: library)
        yield


def together(cells: Sequence[bytes], field: UnischemaField) -> list[Any]:
    out: NDArray[Any]
    if field.is_fixed and not field.dtype.hasobject:
        shape: tuple[Any, ...] = (len(cells), *field.shape)
        out = np.empty(shape, field.dtype)
    else:
        out = np.empty(len(cells), object)
    CODEC.decode_bytes([np.frombuffer(cell, np.uint8) for cell in cells], field, out)
    return list(out)


@given(kinds=cells_of, field=st.sampled_from([FIXED, FIXED, FREE, FREE, SCALAR, TIMES, TEXTS]), library=libraries)
def test_npz_column_equals_its_cells(kinds: list[tuple[str, str]], field: UnischemaField, library: Any) -> None:
    cells = [WRITERS[writer](ARRAYS[array]()) for writer, array in kinds]
    with inflating_by(library):
        found = outcome(lambda: together(cells, field))
    assert found == outcome(lambda: one_by_one(cells, field))


@given(
    count=st.integers(1, 6),
    changes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 10**6), st.integers(1, 255)), max_size=3),
    field=st.sampled_from([FIXED, FREE]),
    library=libraries,
)
def test_npz_column_detects_damage_anywhere(
    count: int, changes: list[tuple[int, int, int]], field: UnischemaField, library: Any
) -> None:
    cells = [by_numpy(ARRAYS["as declared"]()) for _ in range(count)]
    for row, at, by in changes:
        cells[row % count] = changed(cells[row % count], at, by)
    with inflating_by(library):
        found = outcome(lambda: together(cells, field))
    assert found == outcome(lambda: one_by_one(cells, field))


def test_npz_column_error_names_the_row() -> None:
    noise = RANDOM.integers(0, 256, (60, 50_000), np.uint8)
    cells = [by_numpy(row) for row in noise]
    cells[33] = changed(cells[33], 14)
    field = UnischemaField("x", "uint8", (50_000,), CODEC)
    out = np.empty(noise.shape, np.uint8)
    with pytest.raises(DecodeError, match="checksum") as caught:
        CODEC.decode_column(pa.array(cells), field, out)
    assert caught.value.row == 33
    cells[33] = by_numpy(noise[33])
    CODEC.decode_column(pa.array(cells), field, out)
    assert (out == noise).all()


def test_npz_allocates_nothing_for_impossible_sizes() -> None:
    claims = changed(by_numpy(np.arange(10)), 43, 15)  # a declared size that is 983,040 bytes larger
    with pytest.raises(NpzError, match="more than"):
        member_of(np.frombuffer(claims, np.uint8), None)


ZLIB_ONLY = """
import sys, zlib
sys.modules["zlib_ng"] = None
from petastore.codecs.arrays.compressed import zlib_library
assert zlib_library() is zlib
"""


def test_npz_is_inflated_by_zlib_without_zlib_ng(warm_python: WarmInterpreter) -> None:
    ran = warm_python.run(ZLIB_ONLY)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert zlib_library().__name__ == "zlib_ng.zlib_ng"


def test_decoded_npz_values_do_not_change_when_more_are_decoded() -> None:
    field = UnischemaField("x", "int64", (None,), CODEC)
    first = together([by_numpy(np.full(9, row)) for row in range(4)], field)
    together([by_numpy(np.full(9, -1)) for row in range(4)], field)
    assert [value.tolist() for value in first] == [[row] * 9 for row in range(4)]


def test_npz_columns_can_be_decoded_by_several_threads() -> None:
    field = UnischemaField("x", "int64", (1000,), CODEC)
    begin = threading.Barrier(4)

    def differences(number: int) -> int:
        values = RANDOM_BY_THREAD[number].integers(0, 99, (200, 1000))
        cells = [by_numpy(row) for row in values]
        begin.wait()
        return int((np.stack(together(cells, field)) != values).sum())

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(differences, range(4))) == [0] * 4


RANDOM_BY_THREAD = [np.random.default_rng(seed) for seed in range(4)]
