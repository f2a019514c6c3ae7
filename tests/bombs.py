"""Build decompression bombs (small cells that declare or decompress to huge values) and measure peak memory."""

from __future__ import annotations

import functools
import io
import struct
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore import Unischema, UnischemaField
from petastore.codecs.registry import codec_of
from petastore.schema.document import DOCUMENT_KEY, dump_document
from tests.pace import patience

__all__ = [
    "grown_by",
    "jpeg",
    "npy_header",
    "npz",
    "npz_by_zipfile",
    "png",
    "png_chunk",
    "png_film",
    "png_size",
    "png_with_length",
    "write_cells",
    "zlib_zeros",
]

_ZEROS = bytes(1 << 20)


def grown_by(program: str, *arguments: str) -> tuple[int, str]:
    """Run a program that ends with `print(growth())`; return the bytes that it grew by, and its other output."""
    done = subprocess.run(
        [sys.executable, "-c", _PROLOGUE + program, *arguments],
        capture_output=True,
        text=True,
        timeout=patience(100),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *said, grew = done.stdout.splitlines()
    return int(grew), "\n".join(said)


def _deflated_zeros(start: bytes, size: int) -> bytes:
    """Return a deflate stream of `start` and `size` zeros; repeated compressed pieces avoid compressing all zeros."""
    pieces, rest = divmod(size, len(_ZEROS))
    flushed = [zlib.compressobj(9, zlib.DEFLATED, -15) for _ in range(3)]
    first, piece = (
        deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)
        for deflate, content in zip(flushed, (start, _ZEROS), strict=False)
    )
    return first + piece * pieces + flushed[2].compress(bytes(rest)) + flushed[2].flush()


_PROLOGUE = """
import re, sys
def of_process(name):
    return 1024 * int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1))
def begin():
    global before
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = of_process("VmRSS")
def growth():
    return of_process("VmHWM") - before
"""


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return the header of a `.npy` file, also for a dtype and shape that its data do not have."""
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def npz(size: int, *, header: bytes | None = None, says: int | None = None) -> bytes:
    """Return an `.npz` archive with one uint8 array of `size` zeros.

    Args:
        size: Bytes of the array.
        header: Header of the `.npy` file; None for the correct one.
        says: Uncompressed size that the archive declares; None for the correct one.
    """
    start = npy_header("|u1", (size,)) if header is None else header
    crc = zlib.crc32(start)
    for first in range(0, size, len(_ZEROS)):
        crc = zlib.crc32(_ZEROS[: size - first], crc)
    data, total = _deflated_zeros(start, size), len(start) + size if says is None else says
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 8, 0, 33, crc, len(data), total, 7, 0) + b"arr.npy" + data
    central = struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 8, 0, 33, crc, len(data), total, 7, 0, 0, 0, 0, 0, 0)
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(central) + 7, len(local), 0)
    return local + central + b"arr.npy" + end


def npz_by_zipfile(size: int) -> bytes:
    """Return the same archive with sizes stored after the data, a layout that NumPy does not write."""

    class _Unseekable(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

    written = _Unseekable()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr.npy", npy_header("|u1", (size,)) + bytes(size))
    return written.getvalue()


def png(
    height: int, width: int, *, depth: int = 8, colors: int = 2, interlaced: bool = False, extra: bytes = b""
) -> bytes:
    """Return a black PNG; `colors` is the PNG color type (0 gray, 2 RGB, 3 palette)."""
    row = 1 + (width * {0: 1, 2: 3, 3: 1}[colors] * depth + 7) // 8
    size = row * height + (16 * (height + 8) if interlaced else 0)
    adler = 1
    for first in range(0, size, len(_ZEROS)):
        adler = zlib.adler32(_ZEROS[: size - first], adler)
    stream = b"\x78\xda" + _deflated_zeros(b"", size) + struct.pack(">I", adler)
    palette = png_chunk(b"PLTE", bytes(3 * 2 ** min(depth, 8))) if colors == 3 else b""
    header = struct.pack(">IIBBBBB", width, height, depth, colors, 0, 0, interlaced)
    parts = [png_chunk(b"IHDR", header), extra, palette, png_chunk(b"IDAT", stream)]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts) + png_chunk(b"IEND", b"")


def png_chunk(kind: bytes, content: bytes) -> bytes:
    """Return one PNG chunk with its length and checksum."""
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_size(height: int, width: int) -> bytes:
    """Return the height and width as a PNG stores them, from its 17th byte on."""
    return struct.pack(">II", width, height)


def png_with_length(cell: bytes, kind: bytes, length: int) -> bytes:
    """Return a PNG whose first chunk of a kind declares another length; unchanged if it has no such chunk."""
    at = cell.find(kind)
    return cell if at < 0 else cell[: at - 4] + struct.pack(">I", length) + cell[at:]


def png_film(height: int, width: int) -> bytes:
    """Return the chunks that declare a PNG as the first frame of an animation (APNG)."""
    frame = struct.pack(">IIIIIHHBB", 0, width, height, 0, 0, 1, 1, 0, 0)
    return png_chunk(b"acTL", struct.pack(">II", 100, 0)) + png_chunk(b"fcTL", frame)


@functools.cache
def zlib_zeros(size: int) -> bytes:
    """Return `size` zeros, compressed with zlib."""
    return zlib.compress(bytes(size), 9)


def jpeg(height: int, width: int, *, scans: str = "one") -> bytes:
    """Return a JPEG of one color, in which each block of 8 × 8 pixels takes two bits per channel.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        scans: `"one"` scan, `"each"` channel in its own scan, or `"progressive"` with frequencies in separate scans.
    """
    blocks = -(-height // 8) * -(-width // 8)
    start = 0xC2 if scans == "progressive" else 0xC0
    channels = b"".join(bytes([number, 0x11, 0]) for number in (1, 2, 3))
    frame = _jpeg_segment(start, struct.pack(">BHHB", 8, height, width, 3) + channels)
    quantization = _jpeg_segment(0xDB, b"\0" + b"\1" * 64)
    # The Huffman table has one code of one bit, so each block equals the previous block and has no other frequencies.
    codes = b"".join(_jpeg_segment(0xC4, bytes([kind, 1, *[0] * 15, 0])) for kind in (0x00, 0x10))

    def scan(of: tuple[int, ...], bits: int, spectrum: bytes) -> bytes:
        head = bytes([len(of)]) + b"".join(bytes([number, 0]) for number in of) + spectrum
        return _jpeg_segment(0xDA, head) + bytes(-(-blocks * len(of) * bits // 8))

    if scans == "one":
        data = scan((1, 2, 3), 2, b"\0\x3f\0")
    elif scans == "each":
        data = b"".join(scan((number,), 2, b"\0\x3f\0") for number in (1, 2, 3))
    else:
        data = scan((1, 2, 3), 1, b"\0\0\0") + b"".join(scan((number,), 1, b"\1\x3f\0") for number in (1, 2, 3))
    return b"\xff\xd8" + quantization + frame + codes + data + b"\xff\xd9"


def _jpeg_segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def write_cells(folder: Path, field: UnischemaField, cells: Sequence[Any], *, rows_per_row_group: int = 1000) -> str:
    """Write a dataset of one file with exactly these cells, valid or not, and an `id` column; return its URL."""
    schema = Unischema("s", [UnischemaField("id", np.int64), field])
    columns = {"id": np.arange(len(cells)), field.name: pa.array(cells, codec_of(field).storage_type(field))}
    arrow = pa.schema(
        [pa.field("id", pa.int64(), False), pa.field(field.name, columns[field.name].type, field.nullable)],
        {DOCUMENT_KEY: dump_document(schema.name, schema)},
    )
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns, schema=arrow)
    pq.write_table(table, folder / "part-0.parquet", row_group_size=rows_per_row_group, compression="zstd")
    return str(folder)
