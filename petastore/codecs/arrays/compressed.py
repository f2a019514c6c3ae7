"""CompressedNdarrayCodec: an array, stored as a compressed `.npz` archive.

The archive has the bytes of `numpy.savez_compressed(arr=value)`.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.arrays.ndarray import ArrayCodec, put_npy_cells
from petastore.codecs.arrays.npy import MAX_HEADER_BYTES
from petastore.codecs.arrow.arrow_views import ByteCells, byte_cells
from petastore.errors import DecodeError
from petastore.schema.field import UnischemaField

__all__ = ["MEMBER", "CompressedNdarrayCodec", "NpzError", "archive_bytes", "member_of", "member_sizes", "zlib_library"]


@dataclasses.dataclass(frozen=True, slots=True)
class CompressedNdarrayCodec(ArrayCodec):
    """A codec for arrays, stored as compressed `.npz` archives.

    An archive has one deflated member, `arr.npy`; pickle is never used. Thread-safe; decompression releases the GIL.
    Use it for arrays that compress well: masks, sparse maps, small integers.

    Example:
        >>> import numpy as np
        >>> field = UnischemaField("mask", "bool", (64, 64), CompressedNdarrayCodec())
        >>> cell = field.codec.encode(field, np.zeros((64, 64), bool))
        >>> len(cell) < 64 * 64 // 10
        True
        >>> bool(field.codec.decode(field, cell).any())
        False
    """

    codec_id: ClassVar[str] = "compressed_ndarray"

    def _stored(self, array: NDArray[Any]) -> bytes:
        return archive_bytes(array)

    def _npy(self, cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
        return _inflated_cell(cell, field)

    def decode_column(self, cells: pa.Array, field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode a column of `.npz` cells into `out`.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        found = byte_cells(cells, field)
        self.decode_bytes([found[row] for row in range(len(found))], field, out)

    def decode_bytes(self, cells: Sequence[NDArray[np.uint8]], field: UnischemaField, out: NDArray[Any]) -> None:
        """Decode the bytes of archives into `out`, as `decode_column` does.

        Raises:
            DecodeError: As `decode`, with `row` set.
        """
        put_npy_cells(lambda row: _inflated_cell(cells[row], field), field, out)

    def decoded_sizes(self, cells: pa.Array, field: UnischemaField) -> NDArray[np.int64] | None:
        """Return the decoded size that each archive declares, shape (rows,).

        Return None if the field's shape and dtype limit the size.
        """
        return None if _most_bytes(field) is not None else member_sizes(byte_cells(cells, field))


def _inflated_cell(cell: NDArray[np.uint8], field: UnischemaField) -> NDArray[np.uint8]:
    """Return the decompressed `.npy` bytes of one cell."""
    try:
        return np.frombuffer(member_of(cell, _most_bytes(field)) or b"\0", np.uint8)
    except NpzError as problem:
        raise DecodeError(
            f"the cell is not a compressed array: {problem}. Write the cell again, or skip bad rows with "
            "on_error='skip'",
            column=field.name,
        ) from None


def _most_bytes(field: UnischemaField) -> int | None:
    """Return the maximum bytes of one value as `.npy`.

    Return None if the field's shape or text length is variable.
    """
    if None in field.shape or field.dtype == np.dtype(object):
        return None
    return MAX_HEADER_BYTES + 12 + math.prod(size or 0 for size in field.shape) * field.dtype.itemsize


MEMBER = "arr.npy"
"""Name of the member, as `numpy.savez_compressed(arr=…)` gives it."""

_MOST_EXPANSION = 1032
"""Maximum ratio of decompressed to compressed bytes of deflate."""

_MAGIC = b"PK\x03\x04"
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_ZIP64 = struct.pack("<2H", 1, 16)
"""Id and length of the extra field with sizes of 64 bits."""

_ZIP64_SIZES = struct.Struct("<I2Q")
_STORED, _DEFLATED = 0, 8
_ENCRYPTED, _SIZES_FOLLOW = 0x1, 0x8
_IN_ZIP64 = 0xFFFFFFFF
_LARGEST = 2**62


class NpzError(ValueError):
    """The bytes are not a supported `.npz` archive; the message has the reason.

    Codecs convert this error to `DecodeError`.
    """


@dataclasses.dataclass(frozen=True, slots=True)
class _Member:
    """A member of an archive: where it is stored, and its sizes."""

    is_deflated: bool
    """Whether the member is compressed with deflate; otherwise it is stored uncompressed."""

    checksum: int
    """CRC-32 of the uncompressed member."""

    start: int
    """Offset of the member's first byte in the archive."""

    stored_size: int
    """Bytes of the member in the archive, usually compressed."""

    size: int
    """Bytes of the uncompressed member."""


def member_of(cell: NDArray[np.uint8], most: int | None) -> bytes:
    """Return the `.npy` bytes in an archive.

    Args:
        cell: The archive, as uint8.
        most: Maximum size, which is checked before memory is allocated; None if the field does not limit the size.

    Raises:
        NpzError: The archive is damaged, has another member, or exceeds `most`.
    """
    member = _first_member(cell)
    _check_size(member.size, member.stored_size, most)
    stored = cell[member.start : member.start + member.stored_size]
    if len(stored) != member.stored_size:
        raise NpzError("the archive is truncated")
    content = _inflated(stored, member.size) if member.is_deflated else stored.tobytes()
    if len(content) != member.size or zlib_library().crc32(content) != member.checksum:
        raise NpzError("the checksum of the archive does not match its content")
    return content


def member_sizes(cells: ByteCells) -> NDArray[np.int64]:
    """Return the `.npy` size that each archive declares, shape (cells,).

    `member_of` never returns more bytes. For archives that it rejects before decompression, the size is arbitrary.
    """
    return np.fromiter((min(_member_size(cells[row]), _LARGEST) for row in range(len(cells))), np.int64, len(cells))


def _member_size(cell: NDArray[np.uint8]) -> int:
    try:
        return _first_member(cell).size
    except NpzError:
        return 0


@functools.cache
def zlib_library() -> Any:
    """Return the module that decompresses: zlib-ng if it is installed, else zlib.

    `pip install 'petastore[deflate]'` installs zlib-ng.
    """
    try:
        from zlib_ng import zlib_ng
    except ImportError:
        return zlib
    return zlib_ng


def _check_size(size: int, stored_size: int, most: int | None) -> None:
    if size > stored_size * _MOST_EXPANSION + _MOST_EXPANSION:
        raise NpzError(
            f"the archive declares {size:,} bytes, more than its {stored_size:,} stored bytes can be inflated to"
        )
    if most is not None and size > most:
        raise NpzError(f"the archive declares {size:,} bytes, but a value of the field takes at most {most:,}")


def _first_member(cell: NDArray[np.uint8]) -> _Member:
    """Return the first member of an archive.

    It is found by its local header if that is as NumPy writes it, else by `zipfile`, which takes three times as long.

    Args:
        cell: The archive, as uint8.

    Raises:
        NpzError: The bytes do not begin with a local header, the member is encrypted, or `zipfile` cannot read the
            archive.
    """
    start = cell[: _LOCAL_HEADER.size].tobytes()
    if len(start) < _LOCAL_HEADER.size or not start.startswith(_MAGIC):
        raise NpzError("the cell does not begin with the zip magic bytes")
    (_, _, flags, method, _, _, checksum, stored_size, size, name_size, extra_size) = _LOCAL_HEADER.unpack(start)
    first = _LOCAL_HEADER.size + name_size + extra_size
    after = cell[_LOCAL_HEADER.size : first].tobytes()
    if flags & _ENCRYPTED:
        raise NpzError("the archive is encrypted")
    if after[:name_size] != MEMBER.encode() or method not in (_STORED, _DEFLATED) or flags & _SIZES_FOLLOW:
        return _member_by_zipfile(cell)
    if _IN_ZIP64 in (stored_size, size):
        extra = after[name_size:]
        if len(extra) != _ZIP64_SIZES.size or not extra.startswith(_ZIP64):
            return _member_by_zipfile(cell)
        _, size, stored_size = _ZIP64_SIZES.unpack(extra)
    return _Member(method == _DEFLATED, checksum, first, stored_size, size)


def _member_by_zipfile(cell: NDArray[np.uint8]) -> _Member:
    # Imported only for archives of other programs, because the import takes 5 ms.
    import zipfile

    try:
        with zipfile.ZipFile(io.BytesIO(cell.data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, ValueError) as problem:
        raise NpzError(f"the archive cannot be read ({problem})") from None
    names = [member.filename for member in members]
    if names != [MEMBER]:
        raise NpzError(f"the archive must contain exactly one file, {MEMBER!r}, got {names[:5]}")
    (member,) = members
    if member.compress_type not in (_STORED, _DEFLATED) or member.flag_bits & _ENCRYPTED:
        raise NpzError("the archive is encrypted, or compressed by another method than deflate")
    header = cell[member.header_offset : member.header_offset + _LOCAL_HEADER.size].tobytes()
    if len(header) < _LOCAL_HEADER.size or not header.startswith(_MAGIC):
        raise NpzError("the archive is truncated or damaged")
    *_, name_size, extra_size = _LOCAL_HEADER.unpack(header)
    start = member.header_offset + len(header) + name_size + extra_size
    return _Member(member.compress_type == _DEFLATED, member.CRC, start, member.compress_size, member.file_size)


def _inflated(stored: NDArray[np.uint8], size: int) -> bytes:
    library = zlib_library()
    inflater = library.decompressobj(-zlib.MAX_WBITS)
    try:
        # Allow one more byte than declared, to detect a stream that is longer than declared.
        content = inflater.decompress(stored.data, size + 1)
    except library.error as problem:
        raise NpzError(f"the content of the archive is damaged ({problem})") from None
    if not inflater.eof or len(content) != size:
        raise NpzError(f"the content of the archive does not have the declared {size:,} bytes")
    return content


def archive_bytes(array: NDArray[Any]) -> bytes:
    """Return exactly the bytes that `numpy.savez_compressed(arr=array)` writes."""
    written = io.BytesIO()
    np.savez_compressed(written, arr=array)
    return written.getvalue()
