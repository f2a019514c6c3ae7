"""Image files ⇄ pixels: OpenCV writes both formats and reads PNG, simplejpeg reads JPEG (docs/decisions/0004).

A file's header is read first, and a size or kind that the field does not declare is refused before memory is taken.
Both libraries are imported when the first image passes, not before.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.errors import DecodeError, MissingExtraError
from petastore.schema.field import UnischemaField

__all__ = [
    "MAX_PIXELS",
    "Header",
    "ImageError",
    "begins_as_jpeg",
    "checked_header",
    "common_header",
    "declared_header",
    "decode_into",
    "decode_jpegs",
    "decoded_sizes",
    "each_image",
    "exif_orientation",
    "image_bytes",
    "image_header",
    "is_image_file",
    "opencv",
]

MAX_PIXELS = 2**28
"""More pixels are refused: 16,384 × 16,384."""

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_PNG_CHUNK = struct.Struct(">I4s")
_PNG_AROUND = 12
"""Bytes of a chunk of a PNG besides its data: its length and kind before, its checksum behind."""

_JPEG_SIGNATURE = b"\xff\xd8\xff"
_ADOBE = frozenset([0xEE])
"""Marker of the segment in which Adobe says that it has inverted the inks."""

_EXIF = frozenset([0xE1])
"""Marker of segments that may hold what a camera says."""

_EXIF_START = b"Exif\x00\x00"
_EXIF_ORIENTATION = 0x0112

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of segments that say the size of a JPEG."""

_SCANS = frozenset([0xDA])
"""Marker of segments with which a scan of a JPEG begins."""

_AT_ONE_GO = frozenset([0xC0, 0xC1, 0xC9])
"""Markers of those of `_FRAMES` whose JPEGs are decoded line by line, if all channels come in one scan."""

_BLOCK_BYTES = 128
"""What the frequencies of 8 × 8 pixels take."""

_FEW_PIXELS = 2**20
"""Frequencies of so many pixels take 6 MB at most, and are not reckoned with."""

_ROWS_OF_INK = 16
"""Rows of a CMYK image that are converted at a time."""

_LONGEST_START = 1024
"""Bytes of a JPEG before its size; with more there is a camera's note in them, which no other file has."""

_PNG_GRAY, _PNG_RGB, _PNG_PALETTE = 0, 2, 3
_UINT8: Final = np.dtype(np.uint8)
_UINT16: Final = np.dtype(np.uint16)


class ImageError(ValueError):
    """The bytes are no image as declared; the message says why. Never leaves the codecs."""


class Header(NamedTuple):
    """What a file says about its pixels before they are decoded."""

    format: str
    """`"png"`, `"jpeg"`, or `"CMYK jpeg"`, whose inks become red, green and blue."""

    shape: tuple[int, ...]
    """(height, width) or (height, width, 3)."""

    dtype: np.dtype[Any]
    """`uint8` or `uint16`."""


@functools.lru_cache(maxsize=1024)
def _header_of(image_format: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Header:
    return Header(image_format, shape, dtype)


def image_bytes(image: NDArray[Any], image_format: str, quality: int) -> bytes:
    """The file of an image.

    Args:
        image: (height, width) or (height, width, 3) RGB; `uint8`, or `uint16` for PNG.
        image_format: `"png"` or `"jpeg"`.
        quality: Of JPEG.

    Raises:
        ImageError: The library refuses it.
        MissingExtraError: The library is not installed.
    """
    cv2 = opencv()
    native = np.ascontiguousarray(image, image.dtype.newbyteorder("="))
    # OpenCV takes blue first, and writes red first into the file.
    pixels = native if native.ndim == 2 else cv2.cvtColor(native, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_JPEG_QUALITY, quality] if image_format == "jpeg" else []
    try:
        done, encoded = cv2.imencode(f".{image_format}", pixels, options)
    except cv2.error as problem:
        raise ImageError(str(problem)) from None
    if not done:
        raise ImageError("OpenCV could not encode it")
    return bytes(encoded.tobytes())


def each_image(
    read: Callable[[int, NDArray[np.uint8]], object], cells: Sequence[NDArray[np.uint8]], column: str
) -> None:
    """Reads files one by one, however they differ.

    Args:
        read: Is given the row of each file, and the file.
        cells: The files.
        column: Whose they are, for messages.

    Raises:
        DecodeError: Of the first that cannot be read; `row` is set.
    """
    for row, cell in enumerate(cells):
        try:
            read(row, cell)
        except ImageError as problem:
            raise DecodeError(f"the cell is no image as declared: {problem}", column=column, row=row) from None


def begins_as_jpeg(cell: NDArray[np.uint8]) -> bool:
    """Whether the bytes of a file begin as those of a JPEG."""
    return cell[: len(_JPEG_SIGNATURE)].tobytes() == _JPEG_SIGNATURE


def is_image_file(cell: NDArray[np.uint8]) -> bool:
    """Whether bytes begin as those of a PNG or JPEG."""
    return begins_as_jpeg(cell) or cell[: len(_PNG_SIGNATURE)].tobytes() == _PNG_SIGNATURE


def common_header(cells: Sequence[NDArray[np.uint8]], field: UnischemaField) -> Header | None:
    """What all of some files say of themselves, once that is what the field declares; else None."""
    common = None
    try:
        for cell in cells:
            header = _header(cell)
            if header is not common:
                if common is not None:
                    return None
                common = declared_header(header, field)
    except ImageError:
        return None
    return common


def checked_header(cell: NDArray[np.uint8], field: UnischemaField) -> Header:
    """What a file says about its pixels, once that is what the field declares.

    Raises:
        ImageError: It is no image, or one of another dtype or shape, or of too many pixels.
        MissingExtraError: The library is not installed.
    """
    return declared_header(_header(cell), field)


def image_header(cell: NDArray[np.uint8]) -> Header | None:
    """Return the header of an image file; None if it is not a readable image."""
    try:
        return _header(cell)
    except ImageError:
        return None


def decoded_sizes(cells: ByteCells, size_of: Callable[[Header], int]) -> NDArray[np.int64]:
    """Bytes that decoding files takes for pixels, by their headers, shape (cells,); 0 where it is refused before that.

    Args:
        cells: The files.
        size_of: What files of a header take for pixels; may raise ImageError.
    """
    data, sizes = cells.data, np.zeros(len(cells), np.int64)
    known: dict[int, tuple[Header, int]] = {}
    for row, (start, size) in enumerate(zip(cells.starts.tolist(), cells.sizes.tolist(), strict=True)):
        cell = data[start : start + size]
        try:
            header = _header(cell)
            if id(header) not in known:
                known[id(header)] = header, size_of(header)
            sizes[row] = known[id(header)][1]
        except ImageError:
            continue
        if header.shape[0] * header.shape[1] <= _FEW_PIXELS:
            continue
        if header.format != "png":
            sizes[row] = max(sizes[row], _coefficient_bytes(cell.data, header))
        elif _is_animated(cell.data):  # OpenCV keeps the frame that the next one is drawn over
            sizes[row] *= 2
    return sizes


def _coefficient_bytes(data: memoryview, header: Header) -> int:
    """Bytes of the frequencies of a JPEG that comes in several scans, which are all kept until the last scan is there.

    0 for files that are decoded line by line.
    """
    frame = _segment(data, _FRAMES)
    channels = data[frame + 9]
    if data[frame + 1] in _AT_ONE_GO and _channels_of_first_scan(data, frame) == channels:
        return 0
    factors = [data[at] for at in range(frame + 11, min(frame + 11 + 3 * channels, len(data)), 3)]
    across, down = (max((*map(side, factors), 1)) for side in (_across, _down))
    blocks = -(-header.shape[1] // (8 * across)) * -(-header.shape[0] // (8 * down))
    return blocks * sum(_across(factor) * _down(factor) for factor in factors) * _BLOCK_BYTES


def _across(factor: int) -> int:
    return factor >> 4


def _down(factor: int) -> int:
    return factor & 15


def _channels_of_first_scan(data: memoryview, frame: int) -> int | None:
    """Of how many channels the first scan after a frame is; None where that is not to be found as simply as this."""
    try:
        return data[_segment(data, _SCANS, frame) + 4]
    except (ImageError, IndexError):
        return None


def _header(cell: NDArray[np.uint8]) -> Header:
    start = cell[:8].tobytes()
    if start.startswith(_JPEG_SIGNATURE):
        return _jpeg_header(cell)
    if start == _PNG_SIGNATURE:
        return _png_header(cell)
    raise ImageError(f"it begins with {start!r}, which is neither PNG nor JPEG")


def declared_header(header: Header, field: UnischemaField) -> Header:
    """Return the header of the decoded image: gray files are RGB if the field declares three channels.

    Raises:
        ImageError: The image has another dtype or shape than the field declares, or too many pixels.
    """
    height, width = header.shape[:2]
    if height * width > MAX_PIXELS:
        raise ImageError(f"it has {height:,}×{width:,} pixels, more than {MAX_PIXELS:,}")
    is_gray_in_color = len(header.shape) == 2 and len(field.shape) == 3
    found = _header_of(header.format, (height, width, 3), header.dtype) if is_gray_in_color else header
    fits = found.shape == field.shape or field.fits(found.shape)
    if not fits or found.dtype != field.numpy_dtype:
        sides = "×".join(map(str, header.shape))
        raise ImageError(
            f"the {header.format} is {sides} of {header.dtype}, but the field declares {field.dtype_name} of shape "
            f"{field.shape}"
        )
    return found


def _png_header(cell: NDArray[np.uint8]) -> Header:
    start = cell[:33].tobytes()
    if len(start) < 33 or start[12:16] != b"IHDR":
        raise ImageError("the png ends inside its header")
    # OpenCV gives what it could read of a file that was cut.
    if cell[-len(_PNG_END) :].tobytes() != _PNG_END:
        raise ImageError("the png is cut off: it lacks its end")
    width, height = int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
    depth, colors = start[24], start[25]
    if colors not in (_PNG_GRAY, _PNG_RGB, _PNG_PALETTE) or depth not in (1, 2, 4, 8, 16):
        raise ImageError("the png has an alpha channel; encode it again without" if colors in (4, 6) else "damaged png")
    shape = (height, width) if colors == _PNG_GRAY else (height, width, 3)
    return _header_of("png", shape, _UINT16 if depth == 16 else _UINT8)


class _Seen(NamedTuple):
    """How the last JPEG began, to the end of the segment that says its size, and what that says."""

    start: bytes
    header: Header


_seen: _Seen | None = None


def _jpeg_header(cell: NDArray[np.uint8]) -> Header:
    """What a JPEG says of itself; one comparison tells it of files that begin alike, as those of one size often do."""
    global _seen
    seen = _seen  # any thread may put another one there
    if seen is not None and cell[: len(seen.start)].tobytes() == seen.start:
        return seen.header
    height, width, channels, stop = _jpeg_frame(cell.data)
    if channels not in (1, 3, 4):
        raise ImageError(f"the jpeg is of {channels} channels; encode it again as RGB")
    header = _header_of(
        "jpeg" if channels < 4 else "CMYK jpeg", (height, width) if channels == 1 else (height, width, 3), _UINT8
    )
    if stop <= _LONGEST_START:
        _seen = _Seen(cell[:stop].tobytes(), header)
    return header


def _jpeg_frame(data: memoryview) -> tuple[int, int, int, int]:
    """Height, width, channels, and where they end, from the first segment that says them (ITU-T T.81, B.2).

    A few bytes are looked at here, because every call of a library lets go of the GIL and waits for it again.
    """
    at = _segment(data, _FRAMES)
    if at + 9 >= len(data):
        raise ImageError("the jpeg is damaged (it ends before its size is said)")
    return data[at + 5] << 8 | data[at + 6], data[at + 7] << 8 | data[at + 8], data[at + 9], at + 10


def _segment(data: memoryview, markers: frozenset[int], at: int = 2) -> int:
    """Where the first segment with one of some markers begins, from a segment on."""
    try:
        while data[at] == 0xFF:
            marker = data[at + 1]
            if marker in markers:
                return at
            # A marker may be preceded by any number of 0xFF.
            at += 1 if marker == 0xFF else 2 + (data[at + 2] << 8 | data[at + 3])
    except IndexError:
        raise ImageError("the jpeg is damaged (it ends before its size is said)") from None
    raise ImageError(f"the jpeg is damaged (no marker at byte {at:,})")


def decode_into(cell: NDArray[np.uint8], header: Header, out: NDArray[Any], *, shrink: int = 1) -> None:
    """The pixels of a file.

    Args:
        cell: The file.
        header: What it says of itself.
        out: Is written; C-contiguous, of the header's dtype and shape, or without the colours of a JPEG to get its
            brightness alone.
        shrink: Of a JPEG: 2, 4 or 8 gives every block of so many pixels a side as one pixel, which is decoded more
            quickly than the whole; sizes are rounded up. Needs a side of 16 pixels.

    Raises:
        ImageError: The bytes are damaged.
        MissingExtraError: The library is not installed.
    """
    if header.format == "jpeg":
        _decode_jpeg(cell, out, shrink)
    elif header.format == "CMYK jpeg":
        _decode_inks(cell, out)
    else:
        _decode_png(cell, out)


def decode_jpegs(cells: Sequence[NDArray[np.uint8]], out: NDArray[Any], *, shrink: int = 1) -> bool:
    """The pixels of JPEGs of one header, as `decode_into` gives them; False where one of them is damaged.

    The loop is as short as can be: what the interpreter does between two images is done with all caches full of
    pixels, and costs several times as much as at rest.
    """
    decode, options = _simplejpeg().decode_jpeg, _jpeg_options(out.shape[1:], shrink)
    try:
        for cell, place in zip(cells, out, strict=True):
            decode(cell, buffer=place, **options)
    except ValueError:
        return False
    return True


def _decode_jpeg(cell: NDArray[np.uint8], out: NDArray[Any], shrink: int) -> None:
    try:
        _simplejpeg().decode_jpeg(cell, buffer=out, **_jpeg_options(out.shape, shrink))
    except ValueError as problem:
        raise ImageError(f"the jpeg is damaged ({problem})") from None


def _decode_inks(cell: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """A JPEG of cyan, magenta, yellow and black as red, green and blue, as Pillow converts it: without a profile."""
    try:
        inks = _simplejpeg().decode_jpeg(cell, colorspace="CMYK")
    except ValueError as problem:
        raise ImageError(f"the jpeg is damaged ({problem})") from None
    try:
        _segment(cell.data, _ADOBE)  # nearly all files: such inks are inverted, 255 is none
    except ImageError:
        np.invert(inks, out=inks)
    for first in range(0, len(inks), _ROWS_OF_INK):  # what is 16 bits wide in between stays small
        part = inks[first : first + _ROWS_OF_INK]
        light = part[..., :3] * part[..., 3:].astype(np.uint16) + 128
        out[first : first + _ROWS_OF_INK] = (light + (light >> 8)) >> 8


def exif_orientation(cell: NDArray[np.uint8]) -> int:
    """How a camera was held, from 1 (upright) to 8, as the EXIF data of a JPEG says; 1 where nothing says it."""
    data = cell.data
    at = 2
    while begins_as_jpeg(cell):
        try:
            at = _segment(data, _EXIF, at)
            length = data[at + 2] << 8 | data[at + 3]
        except (ImageError, IndexError):
            return 1
        inside = bytes(data[at + 4 : at + 2 + length])
        if inside.startswith(_EXIF_START):
            return _orientation_in(inside[len(_EXIF_START) :])
        at += 2 + length
    return 1


def _orientation_in(exif: bytes) -> int:
    """The orientation in the first directory of EXIF data (TIFF 6.0, section 2)."""
    order = {b"II": "<", b"MM": ">"}.get(exif[:2])
    try:
        if order is not None:
            (first,) = struct.unpack_from(f"{order}I", exif, 4)
            (entries,) = struct.unpack_from(f"{order}H", exif, first)
            for entry in range(entries):
                tag, _, _, value = struct.unpack_from(f"{order}HHIH", exif, first + 2 + 12 * entry)
                if tag == _EXIF_ORIENTATION:
                    return value if 1 <= value <= 8 else 1
    except struct.error:
        pass  # it ends before that
    return 1


def _jpeg_options(shape: tuple[int, ...], shrink: int) -> dict[str, Any]:
    options: dict[str, Any] = {"colorspace": "GRAY" if len(shape) == 2 else "RGB"}
    if shrink > 1:  # the library looks for the smallest size that is not below what it is told
        options |= {"min_height": shape[0], "min_width": shape[1], "min_factor": shrink}
    return options


def _check_chunks(data: memoryview) -> None:
    """Refuses a PNG with a chunk that says that it is longer than what is left of the file (PNG 3, 5.3).

    OpenCV takes twice the memory that a chunk says before it looks for its bytes.
    """
    at = len(_PNG_SIGNATURE)
    while at + _PNG_AROUND <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        if at + _PNG_AROUND + length > len(data):
            break
        if kind == b"IEND":
            return
        at += _PNG_AROUND + length
    raise ImageError(f"the png is damaged (its chunk at byte {at:,} goes on behind its end)")


def _is_animated(data: memoryview) -> bool:
    """Whether a PNG says, before its pixels, that it has several frames."""
    at = len(_PNG_SIGNATURE)
    while at + _PNG_AROUND <= len(data):
        length, kind = _PNG_CHUNK.unpack_from(data, at)
        if kind in (b"acTL", b"IDAT"):
            return bool(kind == b"acTL")
        at += _PNG_AROUND + length
    return False


def _decode_png(cell: NDArray[np.uint8], out: NDArray[Any]) -> None:
    _check_chunks(cell.data)
    cv2 = opencv()
    # Releases from 4.11 on give red first; others turn the pixels of a file round, to be turned round again here.
    red_first: int | None = getattr(cv2, "IMREAD_COLOR_RGB", None)
    colored = cv2.IMREAD_COLOR if red_first is None else red_first
    wanted = cv2.IMREAD_GRAYSCALE if out.ndim == 2 else colored
    try:
        image = cv2.imdecode(cell, wanted | cv2.IMREAD_ANYDEPTH | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error as problem:
        raise ImageError(f"the png is damaged ({problem})") from None
    if image is None or image.shape != out.shape or image.dtype != out.dtype:
        raise ImageError("the png is damaged")
    if out.ndim == 2 or red_first is not None:
        np.copyto(out, image)
    else:
        cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out)


@functools.cache
def opencv() -> ModuleType:
    """The module `cv2`.

    Raises:
        MissingExtraError: It is not installed.
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
