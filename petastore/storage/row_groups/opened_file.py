"""Open Parquet file with Arrow's `ParquetReader`, and a test of Arrow's decoder.

Some builds of pyarrow decode wrong values on some processors without any error (arrow#50503). The package contains a
file of 20 KB with all common encodings and compressions, whose values are given by a formula. Each process decodes this
file before its first read, which takes 1 to 2 ms. The result of the test is not stored on disk, because machines with
different processors may share a home directory.
"""

from __future__ import annotations

import dataclasses
import os
import pkgutil
import weakref
import zlib
from collections.abc import Sequence
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.arrow import flags_of
from petastore.errors import DecodeError
from petastore.forks import Lock
from petastore.inventory import DataFile
from petastore.storage.files.location import Location
from petastore.storage.footers.footer import INT96_UNIT, Footer, check_unchanged
from petastore.storage.footers.tails import LocalVersion, Tail, digest_of, reading_local, tail_of

__all__ = ["Asked", "LocalFile", "OpenedFile", "check_decoder", "checksum_of", "pyarrow_wheel"]

_FILE = "known_answers.parquet"
"""File with known values, with which `check_decoder` tests pyarrow.

`tests/storage/row_groups/test_decoder_check.py` wrote it.
"""

CHECKSUMS = {
    "plain-snappy-int64": 0xd12397b3, "plain-zstd-double-nulls": 0x0bd94702, "plain-lz4-text-nulls": 0xb38efda4,
    "plain-gzip-bool-nulls": 0x3d2c3c50, "dictionary-snappy-int32-2-nulls": 0xc157c95d,
    "dictionary-zstd-int32-6-nulls": 0x663a2fb0, "dictionary-lz4-int32-30-nulls": 0x7156f293,
    "dictionary-gzip-int32-200-nulls": 0x4a519973, "dictionary-snappy-int32-1000-nulls": 0x4e3d0177,
    "dictionary-zstd-text-nulls": 0x5d1c506a, "delta_binary-zstd-int64": 0x5c5f2845,
    "delta_binary-snappy-int32-nulls": 0xce374c09, "delta_length-gzip-text-nulls": 0xb38efda4,
    "delta_bytes-lz4-text-nulls": 0xdb4a1233, "split-lz4-float-nulls": 0x79dc8adf, "split-zstd-double": 0x6399a4b6,
}  # fmt: skip
"""Expected `checksum_of` each column of `_FILE`.

Column names have encoding, compression, type, and `nulls` if the column has nulls.
"""


_is_decoder_checked = False
_lock = Lock()


def check_decoder() -> None:
    """Test pyarrow: decode the file with known values, once per process.

    Raises:
        DecodeError: pyarrow decodes wrong values, or cannot decode; the message names the pyarrow wheel and the
            encoding.
    """
    global _is_decoder_checked
    if _is_decoder_checked:
        return
    with _lock:
        if not _is_decoder_checked:
            wrong = _wrong_column()
            if wrong is not None:
                raise DecodeError(
                    f"{pyarrow_wheel()} decodes Parquet wrongly on this machine: {wrong}. Nothing is read. Install "
                    "another release of pyarrow"
                )
            _is_decoder_checked = True


def _wrong_column() -> str | None:
    """Decode the file with known values; return the problem as text, or None."""
    names = [name for name in CHECKSUMS if pa.Codec.is_available(name.split("-")[1])]
    reader = pq.ParquetReader()
    try:
        data = pkgutil.get_data(__package__, _FILE)  # works in a zip archive too
        reader.open(pa.BufferReader(data), page_checksum_verification=True)
        table = reader.read_all(column_indices=list(map(reader.column_name_idx, names)), use_threads=False)
        wrong = [name for name in names if checksum_of(table.column(name).chunk(0)) != CHECKSUMS[name]]
    except (pa.ArrowException, LookupError, OSError) as problem:
        return f"the file of known values cannot be read: {problem}"
    return f"the known values of {wrong[0]} differ" if wrong else None


def checksum_of(cells: pa.Array) -> int:
    """Return the CRC-32 of a column's null mask and values.

    The column has booleans, numbers or text. The checksum is computed from Arrow's buffers, because `Array.equals` and
    `to_numpy` would import pandas and pyarrow.compute.
    """
    rows, (validity, first, *text) = len(cells), cells.buffers()
    is_there = np.ones(rows, np.bool_) if validity is None else _bits(validity, rows)
    if text:
        offsets = np.frombuffer(first, np.int32, rows + 1)
        parts = [np.diff(offsets).tobytes(), text[0].to_pybytes()[offsets[0] : offsets[-1]]]
    elif pa.types.is_boolean(cells.type):
        parts = [_bits(first, rows)[is_there].tobytes()]
    else:
        parts = [np.frombuffer(first, f"V{cells.type.bit_width // 8}", rows)[is_there].tobytes()]
    return zlib.crc32(b"".join([is_there.tobytes(), *parts]))


def _bits(data: pa.Buffer, rows: int) -> NDArray[np.bool_]:
    return flags_of(pa.Array.from_buffers(pa.bool_(), rows, [None, data]))


def pyarrow_wheel() -> str:
    """Return the version and platform of the installed pyarrow, for error messages."""
    import importlib.metadata  # lazy import: reading does not need it

    try:
        wheel = importlib.metadata.distribution("pyarrow").read_text("WHEEL") or ""
    except importlib.metadata.PackageNotFoundError:
        wheel = ""
    tags = [line.removeprefix("Tag: ") for line in wheel.splitlines() if line.startswith("Tag: ")]
    return f"pyarrow {pa.__version__} ({', '.join(tags)})" if tags else f"pyarrow {pa.__version__}"


Asked: TypeAlias = tuple[tuple[str, ...], ...]
"""Names of the columns to read from a row group, one tuple for each `Part`."""

_STREAM_BYTES = 256 * 1024
"""Buffer size in bytes for reading local files.

With this buffer, stored column chunks are not completely in memory while they are decoded. It is also the request size
for remote files if only the first rows of chunks are read.
"""

_WHOLE_BYTES = 8 * 1024 * 1024
"""Maximum bytes of a row group whose column chunks are read whole.

Arrow allocates the size that a page header declares. In larger row groups, the headers of pages without a checksum are
therefore checked first; this takes little time compared with decoding.
"""


class OpenedFile:
    """Open file and its `ParquetReader`; the file is closed if it cannot be read.

    Args:
        source: A `pyarrow.NativeFile`, which this object closes.
        footer: Footer of the file.
        verify: Whether page checksums are verified.
        is_near: Whether the bytes are local or in memory, so that reading makes no storage requests.
        buffer_bytes: Bytes that are read at a time; 0 means a whole column chunk.
    """

    def __init__(
        self,
        source: Any,
        footer: Footer,
        *,
        verify: bool = True,
        is_near: bool = True,
        buffer_bytes: int = _STREAM_BYTES,
    ) -> None:
        self.source, self.verify, self.is_near = source, verify, is_near
        self._buffer_bytes = 0 if is_near and footer.largest_group_bytes <= _WHOLE_BYTES else buffer_bytes
        self.is_large = is_near and footer.largest_group_bytes > _WHOLE_BYTES
        """Whether page sizes are checked before Arrow allocates memory for the pages.

        The sizes of pages without a checksum are then checked, too.
        """
        try:
            self.reader = self.reader_of(footer, verify=verify)
        except BaseException:
            self.source.close()
            raise

    def reader_of(
        self, footer: Footer, dictionaries: Sequence[str] = (), *, int96_unit: str = INT96_UNIT, verify: bool = True
    ) -> Any:
        """Return a `pyarrow.parquet.ParquetReader` of the file.

        Args:
            footer: Footer of the file.
            dictionaries: Paths of leaf columns to read as Arrow dictionaries.
            int96_unit: Unit of INT96 timestamps.
            verify: Whether to verify page checksums.
        """
        check_decoder()
        reader = pq.ParquetReader()  # not `ParquetFile`, which also builds a dict of all column names
        reader.open(
            self.source,
            metadata=footer.metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            buffer_size=self._buffer_bytes,
            coerce_int96_timestamp_unit=int96_unit,
            page_checksum_verification=verify,
        )
        return reader


@dataclasses.dataclass(eq=False, slots=True)
class LocalFile:
    """Open local file, read by one thread at a time."""

    file: DataFile
    """File of the dataset."""

    path: str
    """Path in the local filesystem."""

    source: Any
    """Arrow's file object; its `fileno` works in every supported pyarrow."""

    version: LocalVersion
    """Version of the file that has the footer."""

    footer: Footer | None = None
    """Footer of the file; None until the footer was read."""

    opened: dict[bool, OpenedFile] = dataclasses.field(default_factory=dict)
    """Open readers of the file; the key is whether the reader verifies page checksums."""

    @classmethod
    def open(cls, location: Location, file: DataFile) -> tuple[LocalFile, Tail]:
        """Open a file and read its tail (footer, size and version); return both.

        Raises:
            FileMissingError: The file is missing.
            StorageError: The file cannot be read.
            MetadataError: The file is not Parquet.
        """
        source = _open(location, file)
        try:
            with reading_local(location, file.path):
                tail = tail_of(source.fileno(), file.path)
        except BaseException:
            source.close()
            raise
        assert tail.local is not None  # noqa: S101 - set for local files
        return cls(file, location.join(file.path), source, tail.local), tail

    @classmethod
    def open_with(cls, location: Location, footer: Footer, *, is_new: bool = False) -> LocalFile:
        """Open a file with a known footer; its version is checked after the first read.

        Args:
            location: Location of the dataset.
            footer: Footer of the file.
            is_new: Whether the file was written since its footer was read; the footer is then read again and compared.

        Raises:
            DatasetChangedError: The file has another footer.
            StorageError: The file is missing, or cannot be read.
        """
        if footer.local is not None and not is_new:
            path = location.join(footer.file.path)
            return cls(footer.file, path, _open(location, footer.file), footer.local, footer)
        opened, tail = cls.open(location, footer.file)
        if tail.footer != footer.encoded or tail.size != footer.file.size:
            opened.source.close()
            check_unchanged(DataFile(footer.file.path, tail.size, digest_of(tail.footer)), footer.file)
        opened.footer = footer
        footer.note_local(opened.version)
        return opened


class FileWithDescriptor(pa.OSFile):  # type: ignore[misc]
    """Local file whose `fileno` works in every supported pyarrow.

    `fileno` of `pyarrow.OSFile` raises an error in pyarrow 18 to 24.
    """

    _descriptor: int
    # With `weakref.finalize`, the descriptor is also closed if the file is not closed explicitly.
    _close_descriptor: Any

    @classmethod
    def of(cls, path: str) -> Self:
        """Open a file for reading.

        Raises:
            OSError: The file cannot be opened.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            # Arrow opens the descriptor, not the path, so that Arrow and `fileno()` use the same file, even if the file
            # at the path is replaced.
            file = cls(f"/dev/fd/{descriptor}")
        except BaseException:
            os.close(descriptor)
            raise
        file._descriptor = descriptor
        file._close_descriptor = weakref.finalize(file, os.close, descriptor)
        return file

    def fileno(self) -> int:
        """Return the file descriptor."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._descriptor

    def close(self) -> None:
        """Close the file and its descriptor. May be called again."""
        super().close()
        self._close_descriptor()


_HAS_FILENO = int(pa.__version__.split(".")[0]) >= 25
"""Whether `fileno` of `pyarrow.OSFile` works."""


def _open(location: Location, file: DataFile) -> Any:
    with reading_local(location, file.path):
        path = location.join(file.path)
        return pa.OSFile(path) if _HAS_FILENO else FileWithDescriptor.of(path)
