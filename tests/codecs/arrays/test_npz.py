"""Tests of `.npz` archives with one member: equal to `numpy.load`, with limits on the decompressed size."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.codecs.arrays.compressed import MEMBER, NpzError, _first_member, archive_bytes, member_of, member_sizes
from petastore.codecs.arrays.npy import array_bytes
from petastore.codecs.arrow.arrow_views import ByteCells

ARRAY = np.arange(1000, dtype=np.int16)


def cell(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def zipped(content: bytes, name: str = MEMBER, *, streamed: bool = False, **options: Any) -> bytes:
    """Return an archive that `zipfile` writes; a streamed one stores sizes after the data."""
    file = io.BytesIO()

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return file.write(data)

    with zipfile.ZipFile(Pipe() if streamed else file, "w", **options) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def cells_of(*archives: bytes) -> ByteCells:
    sizes = np.array([len(data) for data in archives], np.int64)
    return ByteCells(cell(b"".join(archives)), np.cumsum(sizes) - sizes, sizes)


CONTENT = array_bytes(ARRAY)
WRITTEN = {
    "numpy": archive_bytes(ARRAY),
    "deflated": zipped(CONTENT, compression=zipfile.ZIP_DEFLATED),
    "stored": zipped(CONTENT),
    "streamed": zipped(CONTENT, compression=zipfile.ZIP_DEFLATED, streamed=True),
}


@pytest.mark.parametrize("how", WRITTEN)
def test_npz_of_each_writer_is_read_up_to_the_allowed_size(how: str) -> None:
    assert member_of(cell(WRITTEN[how]), None) == CONTENT
    assert member_of(cell(WRITTEN[how]), len(CONTENT)) == CONTENT
    with pytest.raises(
        NpzError,
        match=rf"the archive declares 2,\d\d\d bytes, but a value of the field takes at most {len(CONTENT) - 1:,}",
    ):
        member_of(cell(WRITTEN[how]), len(CONTENT) - 1)
    assert np.array_equal(np.load(io.BytesIO(WRITTEN[how]))["arr"], ARRAY)


def test_npz_sizes_of_a_column_equal_the_sizes_of_its_cells() -> None:
    archives = [*WRITTEN.values(), archive_bytes(ARRAY[:3]), b"", b"no archive", WRITTEN["numpy"][:40]]
    small = len(array_bytes(ARRAY[:3]))
    assert member_sizes(cells_of(*archives)).tolist()[:-1] == [len(CONTENT)] * 4 + [small, 0, 0]


def test_npz_archive_has_the_content_of_numpy_savez_compressed() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, arr=ARRAY)
    assert member_of(cell(file.getvalue()), None) == member_of(cell(archive_bytes(ARRAY)), None)
    found = _first_member(cell(archive_bytes(ARRAY)))
    assert found is not None
    assert (found.is_deflated, found.size) == (True, len(CONTENT))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the cell does not begin with the zip magic bytes"),
        (b"hello" * 20, "the cell does not begin with the zip magic bytes"),
        (zipped(CONTENT, "other.npy"), r"the archive must contain exactly one file, 'arr\.npy', got \['other\.npy'\]"),
        (
            zipped(CONTENT, compression=zipfile.ZIP_BZIP2),
            "the archive is encrypted, or compressed by another method than deflate",
        ),
        (WRITTEN["numpy"][:-1000], "the archive is truncated"),
        (WRITTEN["streamed"][:-1], r"the archive cannot be read \(File is not a zip file\)"),
    ],
    ids=["empty", "text", "another member", "bzip2", "cut", "cut, streamed"],
)
def test_unreadable_npz_raises_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(NpzError, match=said):
        member_of(cell(data), None)


def test_encrypted_npz_member_raises() -> None:
    data = bytearray(WRITTEN["stored"])
    data[6] |= 1
    with pytest.raises(NpzError, match="the archive is encrypted"):
        member_of(cell(bytes(data)), None)


def test_npz_size_beyond_the_deflate_ratio_raises_before_allocation() -> None:
    data = bytearray(WRITTEN["deflated"])
    data[22:26] = (2**31).to_bytes(4, "little")
    with pytest.raises(NpzError, match="the archive declares 2,147,483,648 bytes, more than"):
        member_of(cell(bytes(data)), None)


@given(st.sampled_from(sorted(WRITTEN)), st.data())
def test_damaged_npz_raises_or_decodes_the_content(how: str, data: st.DataObject) -> None:
    damaged = bytearray(WRITTEN[how])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = member_of(cell(bytes(damaged)), 10 * len(CONTENT))
    except NpzError:
        return
    assert found == CONTENT
