"""The one-member archive that `numpy.savez_compressed(arr=value)` writes: read and written without `zipfile` a cell.

```text
local header (30 bytes) · name `arr.npy` · zip64 sizes · deflated .npy · central directory · end records
```

What the archive says is checked before memory is taken, and its checksum afterwards. Archives of another layout (sizes
after the data, for instance) are read through `zipfile` under the same bounds.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import ByteCells

__all__ = [
    "MEMBER",
    "MOST_EXPANSION",
    "FirstMember",
    "NpzError",
    "archive_bytes",
    "first_member",
    "head_dtype",
    "member_of",
    "member_sizes",
]

MEMBER = "arr.npy"
"""Name of the member, as `numpy.savez_compressed(arr=…)` gives it."""

MOST_EXPANSION = 1032
"""Deflate cannot expand by more than this."""

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ZIP64_SIZES = struct.Struct("<2H2Q")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8
_IN_ZIP64 = 0xFFFFFFFF
_NUMPY_START = _LOCAL_HEADER.size + len(MEMBER) + _ZIP64_SIZES.size
"""Bytes before the stream in an archive that NumPy wrote; older ones had no 64-bit sizes."""

_LARGEST = 2**62
_UNREADABLE = (
    zlib.error,
    OSError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
"""What `zipfile` raises for archives that it cannot read, beside its own `BadZipFile`."""


class NpzError(ValueError):
    """The bytes are no archive that we read; the message says why. Never leaves the codecs."""


@dataclasses.dataclass(frozen=True, slots=True)
class FirstMember:
    """What the local header of the first member says."""

    is_deflated: bool
    """Whether it is compressed, or else stored as it is."""

    checksum: int
    """CRC-32 of its content."""

    start: int
    """Where it begins in the archive: bytes of the local header."""

    stored_size: int
    """Bytes in the archive."""

    size: int
    """Bytes of its content."""

    in_zip64: bool
    """Whether both sizes are 64-bit numbers at the end of the local header."""


def member_of(cell: NDArray[np.uint8], most: int | None) -> bytes:
    """The `.npy` bytes in an archive.

    Args:
        cell: The archive, as uint8.
        most: More bytes than this are refused before they are taken; None where the field does not say.

    Raises:
        NpzError: It is damaged, has another member, or more bytes than it may.
    """
    member = first_member(cell)
    if member is None:
        return _through_zipfile(cell, most)
    _check_size(member.size, member.stored_size, most)
    stored = cell[member.start : member.start + member.stored_size]
    if len(stored) != member.stored_size:
        raise NpzError("it ends inside its member")
    content = _inflated(stored, member.size) if member.is_deflated else stored.tobytes()
    if len(content) != member.size or zlib.crc32(content) != member.checksum:
        raise NpzError("its checksum does not fit its content")
    return content


def member_sizes(cells: ByteCells) -> NDArray[np.int64]:
    """Bytes of `.npy` in each archive as it says itself, which `member_of` never exceeds; shape (cells,).

    Of archives that `member_of` refuses without inflating them it is anything from 0.
    """
    sizes = np.zeros(len(cells), np.int64)
    known = np.zeros(len(cells), np.bool_)
    for in_zip64, start in ((True, _NUMPY_START), (False, _NUMPY_START - _ZIP64_SIZES.size)):
        # All headers that are laid out as NumPy lays them are looked at together.
        long_enough = np.flatnonzero((cells.sizes >= start) & ~known)
        heads = cells.data[cells.starts[long_enough, None] + np.arange(start)].view(
            head_dtype(start, in_zip64=in_zip64)
        )
        heads = heads.reshape(len(long_enough))
        alike = heads["start"] == np.void(b"PK\x03\x04")
        alike &= (heads["flags"] == 0) & (heads["method"] == _DEFLATED) & (heads["name_size"] == len(MEMBER))
        alike &= heads["name"] == np.void(MEMBER.encode())
        alike &= heads["extra_size"] == (_ZIP64_SIZES.size if in_zip64 else 0)
        if in_zip64:
            alike &= (heads["small_size"] == _IN_ZIP64) & (heads["kind"] == 1) & (heads["length"] == 16)
        else:
            alike &= (heads["size"] != _IN_ZIP64) & (heads["stored_size"] != _IN_ZIP64)
        sizes[long_enough[alike]] = np.minimum(heads["size"][alike].astype(np.uint64), _LARGEST).astype(np.int64)
        known[long_enough[alike]] = True
    for row in np.flatnonzero(~known).tolist():
        sizes[row] = min(_member_size(cells[row]), _LARGEST)
    return sizes


def _member_size(cell: NDArray[np.uint8]) -> int:
    try:
        member = first_member(cell)
        return _size_by_zipfile(cell) if member is None else member.size
    except (NpzError, *_UNREADABLE):
        return 0


def _size_by_zipfile(cell: NDArray[np.uint8]) -> int:
    import zipfile  # see `_through_zipfile`

    try:
        with zipfile.ZipFile(io.BytesIO(cell.data)) as archive:
            return max((found.file_size for found in archive.infolist()), default=0)
    except zipfile.BadZipFile:
        return 0


@functools.cache
def head_dtype(size: int, *, in_zip64: bool, names: tuple[str, ...] = ()) -> np.dtype[Any]:
    """Members of a local header of so many bytes, as NumPy writes it; all of them, or those that are named."""
    members: dict[str, tuple[str, int]] = {
        "start": ("V4", 0), "flags": ("<u2", 6), "method": ("<u2", 8), "time": ("<u4", 10), "checksum": ("<u4", 14),
        "name_size": ("<u2", 26), "extra_size": ("<u2", 28), "name": (f"V{len(MEMBER)}", _LOCAL_HEADER.size),
    }  # fmt: skip
    small = {"stored_size": ("<u4", 18), "size": ("<u4", 22)}
    if in_zip64:
        members |= {f"small_{name}": place for name, place in small.items()}
        members |= {"kind": ("<u2", size - 20), "length": ("<u2", size - 18)}
        members |= {"size": ("<u8", size - 16), "stored_size": ("<u8", size - 8)}
    else:
        members |= small
    kept = {name: members[name] for name in names or members}
    formats, offsets = zip(*kept.values(), strict=True)
    return np.dtype({"names": list(kept), "formats": formats, "offsets": offsets, "itemsize": size})


def _check_size(size: int, stored_size: int, most: int | None) -> None:
    if size > stored_size * MOST_EXPANSION + MOST_EXPANSION:
        raise NpzError(f"it claims {size:,} bytes, more than {stored_size:,} bytes can be inflated to")
    if most is not None and size > most:
        raise NpzError(f"it holds {size:,} bytes, and the field needs at most {most:,}")


def first_member(cell: NDArray[np.uint8]) -> FirstMember | None:
    """The first member of an archive by its local header; None where that does not tell all.

    Args:
        cell: The archive, as uint8.

    Raises:
        NpzError: It does not begin as an archive does, or is encrypted.
    """
    start = cell[: _LOCAL_HEADER.size].tobytes()
    if len(start) < _LOCAL_HEADER.size or start[:4] != b"PK\x03\x04":
        raise NpzError("it does not begin as a zip archive does")
    (_, _, flags, method, _, _, checksum, stored_size, size, name_size, extra_size) = _LOCAL_HEADER.unpack(start)
    first = _LOCAL_HEADER.size + name_size + extra_size
    after = cell[_LOCAL_HEADER.size : first].tobytes()
    if flags & _ENCRYPTED:
        raise NpzError("it is encrypted")
    if after[:name_size] != MEMBER.encode() or method not in (_STORED, _DEFLATED) or flags & _SIZES_FOLLOW:
        return None
    in_zip64 = _IN_ZIP64 in (stored_size, size)
    if in_zip64:
        extra = after[name_size:]
        if len(extra) != _ZIP64_SIZES.size:
            return None
        kind, length, size, stored_size = _ZIP64_SIZES.unpack(extra)
        if (kind, length) != (1, 16):
            return None
    return FirstMember(method == _DEFLATED, checksum, first, stored_size, size, in_zip64)


def _inflated(stored: NDArray[np.uint8], size: int) -> bytes:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        # One byte more than declared shows a stream that does not end where it says.
        content = inflater.decompress(stored.data, size + 1)
    except zlib.error as problem:
        raise NpzError(f"its content is damaged ({problem})") from None
    if not inflater.eof or len(content) != size:
        raise NpzError(f"its content has not the {size:,} bytes that it declares")
    return content


def _through_zipfile(cell: NDArray[np.uint8], most: int | None) -> bytes:
    # Imported for an archive that NumPy did not write: it takes 5 ms, and looking it up is nothing beside such a cell.
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(cell.data)) as archive:
            names = archive.namelist()
            if names != [MEMBER]:
                raise NpzError(f"it has the members {names[:5]}, and {MEMBER!r} alone was expected")
            member = archive.getinfo(MEMBER)
            if member.compress_type not in (_STORED, _DEFLATED) or member.flag_bits & _ENCRYPTED:
                raise NpzError("its member is encrypted or compressed otherwise than by deflate")
            _check_size(member.file_size, member.compress_size, most)
            with archive.open(member) as opened:
                content = opened.read(member.file_size + 1)
    except NpzError:
        raise
    except (zipfile.BadZipFile, *_UNREADABLE) as problem:
        raise NpzError(f"it is no archive that can be read ({problem})") from None
    if len(content) != member.file_size:
        raise NpzError(f"its content has not the {member.file_size:,} bytes that it declares")
    return content


def archive_bytes(array: NDArray[Any]) -> bytes:
    """Exactly the bytes that `numpy.savez_compressed(arr=array)` writes."""
    written = io.BytesIO()
    np.savez_compressed(written, arr=array)
    return written.getvalue()
