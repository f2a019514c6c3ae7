"""Archives of one member are read as `numpy.load` reads them, within the bounds that they and their field say."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.codecs.arrays.npy import array_bytes
from petastore.codecs.arrays.npz import MEMBER, NpzError, archive_bytes, first_member, member_of, member_sizes
from petastore.codecs.arrow.arrow_views import ByteCells

ARRAY = np.arange(1000, dtype=np.int16)


def cell(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def zipped(content: bytes, name: str = MEMBER, *, streamed: bool = False, **options: Any) -> bytes:
    """An archive as `zipfile` writes it; streamed has the sizes behind the data."""
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
def test_whoever_wrote_it_the_content_and_its_size_are_found(how: str) -> None:
    assert member_of(cell(WRITTEN[how]), None) == CONTENT
    assert member_of(cell(WRITTEN[how]), len(CONTENT)) == CONTENT
    with pytest.raises(NpzError, match=rf"it holds 2,\d\d\d bytes, and the field needs at most {len(CONTENT) - 1:,}"):
        member_of(cell(WRITTEN[how]), len(CONTENT) - 1)
    assert np.array_equal(np.load(io.BytesIO(WRITTEN[how]))["arr"], ARRAY)


def test_sizes_of_many_are_those_of_each() -> None:
    archives = [*WRITTEN.values(), archive_bytes(ARRAY[:3]), b"", b"no archive", WRITTEN["numpy"][:40]]
    small = len(array_bytes(ARRAY[:3]))
    assert member_sizes(cells_of(*archives)).tolist()[:-1] == [len(CONTENT)] * 4 + [small, 0, 0]


def test_an_archive_is_what_numpy_writes() -> None:
    file = io.BytesIO()
    np.savez_compressed(file, arr=ARRAY)
    assert member_of(cell(file.getvalue()), None) == member_of(cell(archive_bytes(ARRAY)), None)
    found = first_member(cell(archive_bytes(ARRAY)))
    assert found is not None
    assert (found.is_deflated, found.size) == (True, len(CONTENT))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not begin as a zip archive does"),
        (b"hello" * 20, "does not begin as a zip archive does"),
        (zipped(CONTENT, "other.npy"), r"it has the members \['other.npy'\]"),
        (zipped(CONTENT, compression=zipfile.ZIP_BZIP2), "compressed otherwise than by deflate"),
        (WRITTEN["numpy"][:-1000], "it ends inside its member"),
        (WRITTEN["streamed"][:-1], "no archive that can be read"),
    ],
    ids=["empty", "text", "another member", "bzip2", "cut", "cut, streamed"],
)
def test_what_cannot_be_read_is_refused_with_the_reason(data: bytes, said: str) -> None:
    with pytest.raises(NpzError, match=said):
        member_of(cell(data), None)


def test_an_encrypted_member_is_refused() -> None:
    data = bytearray(WRITTEN["stored"])
    data[6] |= 1
    with pytest.raises(NpzError, match="it is encrypted"):
        member_of(cell(bytes(data)), None)


def test_a_size_beyond_what_deflate_can_give_is_refused_before_memory_is_taken() -> None:
    data = bytearray(WRITTEN["deflated"])
    data[22:26] = (2**31).to_bytes(4, "little")
    with pytest.raises(NpzError, match="it claims 2,147,483,648 bytes, more than"):
        member_of(cell(bytes(data)), None)


@given(st.sampled_from(sorted(WRITTEN)), st.data())
def test_a_damaged_archive_is_refused_or_gives_the_content(how: str, data: st.DataObject) -> None:
    damaged = bytearray(WRITTEN[how])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = member_of(cell(bytes(damaged)), 10 * len(CONTENT))
    except NpzError:
        return
    assert found == CONTENT
