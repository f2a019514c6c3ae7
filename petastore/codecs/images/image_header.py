"""PNG and JPEG files: headers, which are read before any pixel is decoded, and encoding and decoding of pixels.

Headers give the size, dtype, EXIF orientation and the memory to decode. They are parsed in Python, because every call
of an image library releases the GIL and must acquire it again. OpenCV encodes PNG and JPEG and decodes PNG; simplejpeg
decodes JPEG. Both libraries are imported when the first image is encoded or decoded.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.errors import MissingExtraError
from petastore.schema.field import UnischemaField

__all__ = [
    "MAX_PIXELS",
    "Header",
    "ImageError",
    "checked_header",
    "declared_header",
    "decode_into",
    "decoded_sizes",
    "exif_orientation",
    "image_bytes",
    "is_image_file",
    "opencv",
    "read_header",
]


MAX_PIXELS = 2**28
"""Maximum pixels of an image, such as 16,384 × 16,384; larger images are rejected."""

_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_CHUNK_FRAME = 12
"""Bytes of a PNG chunk in addition to its data: length and kind before the data, checksum after it."""

_PNG_GRAY, _PNG_RGB, _PNG_PALETTE = 0, 2, 3

_JPEG = b"\xff\xd8\xff"
# Markers of the segments of a JPEG (ITU-T T.81, B.1).
_ADOBE, _EXIF, _SCANS = frozenset([0xEE]), frozenset([0xE1]), frozenset([0xDA])
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the JPEG segments that contain the image size (frame headers)."""

_SEQUENTIAL = frozenset([0xC0, 0xC1, 0xC9])
"""Markers among `_FRAMES` of JPEGs that are decoded line by line if one scan has all channels."""

_BLOCK_BYTES = 128
"""Bytes of the DCT coefficients of 8 × 8 pixels."""

_FEW_PIXELS = 2**20
"""Maximum pixels of an image whose coefficients are not counted: they take at most 6 MB."""

_EXIF_START = b"Exif\x00\x00"
_EXIF_ORIENTATION = 0x0112
_UINT8: Final = np.dtype(np.uint8)
_UINT16: Final = np.dtype(np.uint16)


class ImageError(ValueError):
    """The bytes are not an image as declared; the message has the reason.

    Codecs convert this error to `EncodeError` or `DecodeError`.
    """


class Header(NamedTuple):
    """Format, shape and dtype of the image in a file."""

    format: str
    """`"png"`, `"jpeg"`, or `"CMYK jpeg"`, which is converted to RGB when it is decoded."""

    shape: tuple[int, ...]
    """(height, width) or (height, width, 3)."""

    dtype: np.dtype[Any]
    """`uint8` or `uint16`."""


def is_image_file(cell: NDArray[np.uint8]) -> bool:
    """Return whether bytes begin like a PNG or JPEG file."""
    return cell[:8].tobytes().startswith((_PNG, _JPEG))


def read_header(cell: NDArray[np.uint8]) -> Header:
    """Return the header of a PNG or JPEG file.

    Raises:
        ImageError: The bytes are not a PNG or JPEG file, or a kind of file that cannot be decoded.
    """
    start = cell[:8].tobytes()
    if start.startswith(_JPEG):
        return _jpeg_header(cell)
    if start == _PNG:
        return _png_header(cell)
    raise ImageError(f"an image must be PNG or JPEG, got a file that begins with {start!r}")


def checked_header(cell: NDArray[np.uint8], field: UnischemaField) -> Header:
    """Read the header of a file, and compare it with the field; return the decoded format.

    The result has the shape and dtype of the image after decoding.

    Raises:
        ImageError: As `read_header` and `declared_header`.
    """
    return declared_header(read_header(cell), field)


def declared_header(header: Header, field: UnischemaField) -> Header:
    """Compare a file's header with the field; return a header with the decoded shape.

    The shape differs only for a gray file that becomes RGB, because the field declares three channels.

    Raises:
        ImageError: The image has another dtype or shape than the field declares, or too many pixels.
    """
    height, width = header.shape[:2]
    if height * width > MAX_PIXELS:
        raise ImageError(f"an image must have at most {MAX_PIXELS:,} pixels, got {height:,}×{width:,}")
    is_gray_in_color = len(header.shape) == 2 and len(field.shape) == 3
    decoded = Header(header.format, (height, width, 3), header.dtype) if is_gray_in_color else header
    fits = decoded.shape == field.shape or field.fits(decoded.shape)
    if not fits or decoded.dtype != field.numpy_dtype:
        sides = "×".join(map(str, header.shape))
        raise ImageError(
            f"the {header.format} is {sides} of {header.dtype}, but the field declares {field.dtype_name} of shape "
            f"{field.shape}"
        )
    return decoded


def _png_header(cell: NDArray[np.uint8]) -> Header:
    start = cell[:33].tobytes()
    if len(start) < 33 or start[12:16] != b"IHDR":
        raise ImageError("the png is truncated inside its header")
    # OpenCV would return the readable part of a truncated file without an error.
    if cell[-len(_PNG_END) :].tobytes() != _PNG_END:
        raise ImageError("the png is truncated")
    width, height, depth, colors = struct.unpack_from(">IIBB", start, 16)
    if colors not in (_PNG_GRAY, _PNG_RGB, _PNG_PALETTE) or depth not in (1, 2, 4, 8, 16):
        raise ImageError(
            "a png must not have an alpha channel. Encode the image again without alpha"
            if colors in (4, 6)
            else "the png is damaged (its header declares an invalid color type or bit depth)"
        )
    shape = (height, width) if colors == _PNG_GRAY else (height, width, 3)
    return Header("png", shape, _UINT16 if depth == 16 else _UINT8)


def _png_chunks(data: memoryview) -> Iterator[bytes]:
    """Yield the kind of each chunk (PNG specification 3, section 5.3).

    Raises:
        ImageError: A chunk is longer than the rest of the file, or the file has no further chunk.
    """
    at = len(_PNG)
    while at + _PNG_CHUNK_FRAME <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        if at + _PNG_CHUNK_FRAME + length > len(data):
            break
        yield kind
        at += _PNG_CHUNK_FRAME + length
    raise ImageError(f"the png is damaged (its chunk at byte {at:,} exceeds the file)")


def _jpeg_header(cell: NDArray[np.uint8]) -> Header:
    at, data = _segment(cell.data, _FRAMES), cell.data
    if at + 9 >= len(data):
        raise ImageError("the jpeg is truncated inside its header")
    height, width, channels = struct.unpack_from(">HHB", data, at + 5)
    if channels not in (1, 3, 4):
        raise ImageError(f"a jpeg must have 1, 3 or 4 channels, got {channels}. Encode it again as RGB")
    shape = (height, width) if channels == 1 else (height, width, 3)
    return Header("jpeg" if channels < 4 else "CMYK jpeg", shape, _UINT8)


def _segment(data: memoryview, markers: frozenset[int], at: int = 2) -> int:
    """Return the byte offset of the next JPEG segment with one of the given markers.

    The search starts at the offset `at`, which must be the start of a segment.
    """
    try:
        while data[at] == 0xFF:
            marker = data[at + 1]
            if marker in markers:
                return at
            # Any number of fill bytes 0xFF may precede a marker, so one byte is skipped at a time.
            at += 1 if marker == 0xFF else 2 + (data[at + 2] << 8 | data[at + 3])
    except IndexError:
        raise ImageError("the jpeg is truncated inside its header") from None
    raise ImageError(f"the jpeg is damaged (byte {at:,} must begin a marker)")


def _has_inverted_inks(cell: NDArray[np.uint8]) -> bool:
    """Return whether a CMYK JPEG has Adobe's marker, and so stores 255 for no ink."""
    try:
        return _segment(cell.data, _ADOBE) > 0
    except ImageError:
        return False


def exif_orientation(cell: NDArray[np.uint8]) -> int:
    """Return the EXIF orientation of a JPEG, from 1 (upright) to 8.

    Return 1 if the file has no EXIF orientation, or is not a JPEG.
    """
    at, data = 2, cell.data
    try:
        while cell[:3].tobytes() == _JPEG:
            at = _segment(data, _EXIF, at)
            (length,) = struct.unpack_from(">H", data, at + 2)
            inside = bytes(data[at + 4 : at + 2 + length])
            if inside.startswith(_EXIF_START):
                return _orientation_in(inside[len(_EXIF_START) :])
            at += 2 + length
    except (ImageError, struct.error):  # the segment is missing or damaged
        pass
    return 1


def _orientation_in(exif: bytes) -> int:
    """Return the orientation in the first directory of EXIF data; 1 if there is none.

    The format is that of TIFF 6.0, section 2.
    """
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    if order is not None:
        (first,) = struct.unpack_from(f"{order}I", exif, 4)
        (entries,) = struct.unpack_from(f"{order}H", exif, first)
        for entry in range(entries):
            tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, first + 2 + 12 * entry)
            if tag == _EXIF_ORIENTATION and 1 <= value <= 8:
                return int(value)
    return 1


def decoded_sizes(cells: ByteCells, size_of: Callable[[Header], int]) -> NDArray[np.int64]:
    """Return the bytes of pixels or coefficients that decoding each file needs.

    The result has the shape (cells,), with 0 for files whose header is rejected.

    Args:
        cells: The files.
        size_of: Function that returns the bytes of pixels for a header; may raise ImageError.
    """
    sizes, size_of = np.zeros(len(cells), np.int64), functools.cache(size_of)
    for row in range(len(cells)):
        cell = cells[row]
        try:
            header = read_header(cell)
            sizes[row] = size_of(header)
            if header.shape[0] * header.shape[1] <= _FEW_PIXELS:
                continue
            if header.format != "png":
                sizes[row] = max(sizes[row], _coefficient_bytes(cell.data, header))
            elif next(kind for kind in _png_chunks(cell.data) if kind in (b"acTL", b"IDAT")) == b"acTL":
                sizes[row] *= 2  # for an animated PNG, OpenCV also has the previous frame in memory
        except ImageError:
            continue
    return sizes


def _coefficient_bytes(data: memoryview, header: Header) -> int:
    """Return the bytes of DCT coefficients that decoding a JPEG keeps in memory.

    They stay until the last scan. Return 0 for files that are decoded line by line.
    """
    frame = _segment(data, _FRAMES)
    channels = data[frame + 9]
    try:
        is_one_scan = data[_segment(data, _SCANS, frame) + 4] == channels
    except (ImageError, IndexError):
        is_one_scan = False
    if is_one_scan and data[frame + 1] in _SEQUENTIAL:
        return 0
    factors = [(factor >> 4, factor & 15) for factor in data[frame + 11 : frame + 11 + 3 * channels : 3]]
    across, down = (max(sides) for sides in zip((1, 1), *factors, strict=True))
    blocks = -(-header.shape[1] // (8 * across)) * -(-header.shape[0] // (8 * down))
    return blocks * sum(of_rows * of_columns for of_columns, of_rows in factors) * _BLOCK_BYTES


_ROWS_OF_INK = 16
"""Rows of a CMYK image that are converted at a time, so that their 16-bit intermediate stays small."""


def image_bytes(image: NDArray[Any], image_format: str, quality: int) -> bytes:
    """Encode an image as the bytes of a PNG or JPEG file.

    Args:
        image: (height, width) or (height, width, 3) RGB; `uint8`, or `uint16` for PNG.
        image_format: `"png"` or `"jpeg"`.
        quality: JPEG quality.

    Raises:
        ImageError: The library cannot encode the image.
        MissingExtraError: The library is not installed.
    """
    cv2 = opencv()
    native = np.ascontiguousarray(image, image.dtype.newbyteorder("="))
    # OpenCV expects BGR, and stores RGB in the file.
    pixels = native if native.ndim == 2 else cv2.cvtColor(native, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if image_format == "jpeg" else []
    try:
        done, encoded = cv2.imencode(f".{image_format}", pixels, options)
    except cv2.error as problem:
        raise ImageError(str(problem)) from None
    if not done:
        raise ImageError("OpenCV could not encode the image")
    return bytes(encoded.tobytes())


def decode_into(cell: NDArray[np.uint8], header: Header, out: NDArray[Any], *, shrink: int = 1) -> None:
    """Decode the pixels of an image file into `out`.

    Args:
        cell: The file.
        header: Header of the file.
        out: C-contiguous array of the header's dtype and shape; for a JPEG, an array without channels gets the
            brightness.
        shrink: For a JPEG, 2, 4 or 8: each block of this many pixels per side is decoded as one pixel, which is faster;
            sizes are rounded up. The longer side of the image needs at least 16 pixels.

    Raises:
        ImageError: The bytes are damaged.
        MissingExtraError: The library is not installed.
    """
    if header.format == "png":
        _decode_png(cell, out)
        return
    decode_jpeg = _simplejpeg().decode_jpeg
    try:
        if header.format == "CMYK jpeg":
            _convert_inks(decode_jpeg(cell, colorspace="CMYK"), cell, out)
        elif shrink == 1:
            decode_jpeg(cell, "GRAY" if out.ndim == 2 else "RGB", buffer=out)
        else:  # simplejpeg picks the smallest size that is not below the requested minimum
            colorspace = "GRAY" if out.ndim == 2 else "RGB"
            least = {"min_height": out.shape[0], "min_width": out.shape[1], "min_factor": shrink}
            decode_jpeg(cell, colorspace, buffer=out, **least)
    except ValueError as problem:
        raise ImageError(f"the jpeg is damaged ({problem})") from None


def _convert_inks(inks: NDArray[np.uint8], cell: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Convert CMYK to RGB without a color profile, as Pillow does."""
    if not _has_inverted_inks(cell):
        np.invert(inks, out=inks)
    for first in range(0, len(inks), _ROWS_OF_INK):
        part = inks[first : first + _ROWS_OF_INK]
        light = part[..., :3] * part[..., 3:].astype(np.uint16) + 128
        out[first : first + _ROWS_OF_INK] = (light + (light >> 8)) >> 8


def _decode_png(cell: NDArray[np.uint8], out: NDArray[Any]) -> None:
    # OpenCV would allocate twice the declared size of a chunk, even if the chunk is larger than the file.
    next(kind for kind in _png_chunks(cell.data) if kind == b"IEND")
    cv2 = opencv()
    # OpenCV decodes to RGB from 4.11 on, else to BGR.
    rgb: int | None = getattr(cv2, "IMREAD_COLOR_RGB", None)
    color = cv2.IMREAD_COLOR if rgb is None else rgb
    flags = (cv2.IMREAD_GRAYSCALE if out.ndim == 2 else color) | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION
    try:
        image = cv2.imdecode(cell, flags)
    except cv2.error as problem:
        raise ImageError(f"the png is damaged ({problem})") from None
    if image is None or image.shape != out.shape or image.dtype != out.dtype:
        raise ImageError("the png is damaged (its pixels cannot be decoded as its header declares)")
    if out.ndim == 2 or rgb is not None:
        np.copyto(out, image)
    else:
        cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out)


@functools.cache
def opencv() -> ModuleType:
    """Return the module `cv2`.

    Raises:
        MissingExtraError: The library is not installed.
    """
    try:
        import cv2
    except ImportError:
        raise MissingExtraError("CompressedImageCodec", package="opencv-python-headless", extra="image") from None
    module: ModuleType = cv2
    return module


@functools.cache
def _simplejpeg() -> ModuleType:
    try:
        import simplejpeg
    except ImportError:
        raise MissingExtraError("CompressedImageCodec", package="simplejpeg", extra="image") from None
    module: ModuleType = simplejpeg
    return module
