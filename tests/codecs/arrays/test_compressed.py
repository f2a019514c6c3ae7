"""Tests of `CompressedNdarrayCodec`: codec laws, NumPy's `.npz` files, damage, and limits on decompression."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from petastore.codecs import CompressedNdarrayCodec
from petastore.codecs.arrays.compressed import member_of
from petastore.errors import DecodeError, EncodeError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests import bombs
from tests.codecs import bombs_of
from tests.codecs.measured_laws import MeasuredCodecLaws
from tests.memory import grown_in_child

CODEC = CompressedNdarrayCodec()
MASK = UnischemaField("mask", "uint8", (8, 8), CODEC)
FREE = UnischemaField("mask", "uint8", (None, None), CODEC)


def archive(members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED, *, streamed: bool = False) -> bytes:
    """Return a zip archive; a streamed one stores sizes after the data."""
    written = io.BytesIO()
    with zipfile.ZipFile(Pipe(written) if streamed else written, "w", method) as opened:
        for name, content in members.items():
            opened.writestr(name, content)
    return written.getvalue()


class Pipe(io.RawIOBase):
    """Write-only stream without `seek`, so that zipfile stores sizes after the data."""

    def __init__(self, target: io.BytesIO) -> None:
        self.target = target

    def write(self, content: Any) -> int:
        return self.target.write(content)

    def writable(self) -> bool:
        return True


def npy(array: np.ndarray[Any, Any]) -> bytes:
    written = io.BytesIO()
    np.save(written, array)
    return written.getvalue()


class TestCompressedLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        return {
            "fixed": Case(MASK, hnp.arrays("uint8", (8, 8)), [np.zeros((8, 8), bool), np.zeros((8, 9), "uint8")]),
            "free": Case(
                UnischemaField("cloud", "float32", (None, 3), CODEC),
                hnp.arrays("float32", hnp.array_shapes(min_dims=1, max_dims=1).map(lambda shape: (*shape, 3))),
                [np.zeros((2, 4), "float32"), [[1.0, 2.0, 3.0]]],
            ),
            "scalar": Case(UnischemaField("s", "int64", (), CODEC), hnp.arrays("int64", ()), [np.zeros(1, "int64")]),
            "text": Case(
                UnischemaField("names", str, (2,), CODEC),
                hnp.arrays("U2", (2,), elements={"alphabet": "ab深"}),
                [np.array([b"a", b"b"])],
            ),
        }

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.archives(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parents[1] / "golden" / "compressed_ndarray"

    def golden_values(self, name: str) -> Sequence[Any]:
        values: dict[str, list[Any]] = {
            "fixed": [np.arange(64, dtype="uint8").reshape(8, 8), np.zeros((8, 8), "uint8")],
            "free": [np.zeros((0, 3), "float32"), np.arange(6, dtype="float32").reshape(2, 3) / 7],
            "scalar": [np.array(-7)],
            "text": [np.array(["a", "深い"])],
        }
        return values[name]


@given(array=hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)))
def test_npz_cells_are_readable_by_numpy_and_the_reverse(array: np.ndarray[Any, Any]) -> None:
    field = UnischemaField("a", array.dtype.newbyteorder("="), (None,) * array.ndim, CODEC)
    with np.load(io.BytesIO(CODEC.encode(field, array))) as opened:
        assert opened.files == ["arr"]
        np.testing.assert_array_equal(opened["arr"], array)
    written = io.BytesIO()
    np.savez_compressed(written, arr=array)
    np.testing.assert_array_equal(CODEC.decode(field, written.getvalue()), array)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("streamed", [False, True])
def test_npz_archives_of_other_writers_decode(method: int, streamed: bool) -> None:
    array = np.arange(64, dtype="uint8").reshape(8, 8)
    cell = archive({"arr.npy": npy(array)}, method, streamed=streamed)
    np.testing.assert_array_equal(CODEC.decode(MASK, cell), array)


def refused(cell: bytes, field: UnischemaField = FREE) -> str:
    with pytest.raises(DecodeError) as caught:
        CODEC.decode(field, cell)
    return str(caught.value)


def test_npz_with_another_member_raises() -> None:
    content = npy(np.zeros((2, 2), "uint8"))
    assert "must contain exactly one file" in refused(archive({"other.npy": content}))
    assert "must contain exactly one file" in refused(archive({"other.npy": content, "arr.npy": content}))
    assert "does not begin with" in refused(archive({}))
    assert "compressed by another method" in refused(archive({"arr.npy": content}, zipfile.ZIP_LZMA))


def test_npz_with_an_impossible_size_raises_before_decompression() -> None:
    cell = bytearray(archive({"arr.npy": npy(np.zeros((8, 8), "uint8"))}))
    cell[22:26] = (2**31).to_bytes(4, "little")
    assert "more than" in refused(bytes(cell))


def test_npz_larger_than_the_field_raises() -> None:
    bomb = archive({"arr.npy": npy(np.zeros((4096, 4096), "uint8"))})
    assert len(bomb) < 32_000
    assert "a value of the field takes at most" in refused(bomb, MASK)
    assert "a value of the field takes at most" in refused(archive({"arr.npy": bytes(10**7)}, streamed=True), MASK)


def test_npz_that_inflates_beyond_its_declared_size_raises() -> None:
    content = npy(np.zeros((8, 8), "uint8"))
    deflater = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = deflater.compress(bytes(10**7)) + deflater.flush()
    good = archive({"arr.npy": content})
    header = bytearray(good[:37])
    header[18:22] = len(deflated).to_bytes(4, "little")
    assert "does not have the declared" in refused(bytes(header) + deflated)


def test_npz_with_a_wrong_checksum_raises() -> None:
    cell = bytearray(archive({"arr.npy": npy(np.arange(64, dtype="uint8").reshape(8, 8))}, zipfile.ZIP_STORED))
    cell[-200] ^= 1
    assert refused(bytes(cell))


def test_npz_that_is_empty_or_not_an_archive_raises() -> None:
    assert refused(archive({"arr.npy": b""}))
    assert refused(b"")
    assert refused(b"PK\x03\x04")
    assert refused(npy(np.zeros((2, 2), "uint8")))


def test_encrypted_npz_raises() -> None:
    cell = bytearray(archive({"arr.npy": npy(np.zeros((2, 2), "uint8"))}))
    cell[6] |= 1
    assert "encrypted" in refused(bytes(cell))


def test_npz_never_loads_pickles() -> None:
    written = io.BytesIO()
    np.savez_compressed(written, arr=np.array([{"a": 1}], object))
    assert refused(written.getvalue(), UnischemaField("a", "int64", (1,), CODEC))


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_decode_error_names_the_row_of_a_bad_cell(bad: int) -> None:
    cells = [CODEC.encode(MASK, np.full((8, 8), row, "uint8")) for row in range(3)]
    cells[bad] = b"damaged"
    for field in (MASK, FREE):
        out = np.empty((3, 8, 8), "uint8") if field is MASK else np.empty(3, object)
        with pytest.raises(DecodeError) as caught:
            CODEC.decode_column(pa.array(cells, pa.binary()), field, out)
        assert (caught.value.column, caught.value.row) == ("mask", bad)


def test_encode_error_names_the_row_of_a_bad_value() -> None:
    with pytest.raises(EncodeError) as caught:
        CODEC.encode_column([None, np.zeros((8, 8), "uint8"), np.zeros((8, 8))], MASK)
    assert (caught.value.column, caught.value.row) == ("mask", 2)


def test_npz_parser_equals_zipfile() -> None:
    cell = CODEC.encode(MASK, np.arange(64, dtype="uint8").reshape(8, 8))
    with zipfile.ZipFile(io.BytesIO(cell)) as opened:
        assert member_of(np.frombuffer(cell, np.uint8), None) == opened.read("arr.npy")


@pytest.mark.parametrize("says", [100, 2**20])
def test_npz_decompression_stops_at_the_declared_size(says: int) -> None:
    field, cell = UnischemaField("a", "uint8", (None,), CODEC), bombs.npz(200 * 2**20, says=says)

    def refused(growth: Callable[[], int]) -> list[Any]:
        with pytest.raises(DecodeError):
            CODEC.decode(field, cell)
        with pytest.raises(DecodeError):
            CODEC.decode_column(pa.array([cell]), field, empty_column(field, 1))
        return [growth()]

    _, grown = grown_in_child(refused)
    assert grown < 20 * 2**20
