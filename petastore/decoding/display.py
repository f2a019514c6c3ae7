"""Show values as text and images, for the command line, the viewer and notebooks."""

from __future__ import annotations

import base64
import struct
import unicodedata
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.images.image import CompressedImageCodec
from petastore.schema.field import UnischemaField

__all__ = [
    "data_uri",
    "drawable",
    "holds_images",
    "in_words",
    "pixels_of",
    "png_bytes",
    "printable",
    "shape_in_words",
    "shrunk",
    "thumbnail_png",
]

_MOST_CHARACTERS = 1000
"""Maximum characters of a text that are shown: more than one line of any terminal."""

_MOST_BYTES = 24
_MOST_ITEMS = 8


_CHANNELS = (1, 3, 4)
"""Numbers of channels of an image: gray, RGB, and RGBA."""

_COLOR_TYPES = {1: 0, 3: 2, 4: 6}
"""Dict from number of channels to color type of PNG."""


def printable(text: str) -> str:
    r"""Return the text with each unprintable character escaped; spaces stay.

    The escapes are those of Python strings. Cells, column names and paths are untrusted. Escape sequences in them could
    control the terminal, and characters that change the direction of writing could hide the real text.

    Example:
        >>> print(printable("one\ntwo \x1b[31mred\x1b[0m"), printable("Zürich 東京"))
        one\ntwo \x1b[31mred\x1b[0m Zürich 東京
    """
    if text.isprintable():
        return text
    return "".join(map(_seen, text))


def _seen(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()


def in_words(value: Any, dtype_name: str) -> str:
    r"""Return a value as one line that is safe to print on a terminal.

    Args:
        value: A NumPy scalar or array, `str`, `bytes`, `Decimal`, or a nested value of plain Parquet.
        dtype_name: Name of the field's dtype in the schema document.

    Example:
        >>> in_words(np.arange(12, dtype="float32").reshape(4, 3) / 8, "float32")
        'float32 4×3 [0 0.125 0.25 0.375 0.5 0.625 0.75 0.875 …]'
        >>> in_words("two\nlines", "str"), in_words(b"\x89PNG", "bytes"), in_words(np.int64(1200), "int64")
        ('two\\nlines', "b'\\x89PNG'", '1200')
    """
    if isinstance(value, np.ndarray):
        return f"{dtype_name} {shape_in_words(value.shape)} {_items(value)}"
    if isinstance(value, str):
        return printable(value[:_MOST_CHARACTERS]) + ("…" if len(value) > _MOST_CHARACTERS else "")
    if isinstance(value, bytes):
        more = f"… {len(value):,} bytes" if len(value) > _MOST_BYTES else ""
        return f"{value[:_MOST_BYTES]!r}{more}"
    return printable(str(value)[:_MOST_CHARACTERS])


def shape_in_words(shape: tuple[int, ...]) -> str:
    """Format the shape of an array for display.

    Example:
        >>> shape_in_words((1024, 3))
        '1,024×3'
    """
    return "×".join(f"{size:,}" for size in shape)


def _items(array: NDArray[Any]) -> str:
    shown = [_item(array.flat[place]) for place in range(min(array.size, _MOST_ITEMS))]
    return f"[{' '.join(shown)}{' …' if array.size > _MOST_ITEMS else ''}]"


def _item(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, (np.floating, np.complexfloating)):
        return f"{value:.4g}"
    if isinstance(value, (str, bytes)):
        # Quotes distinguish blanks inside a value from those between values.
        return f"{value[:_MOST_BYTES]!r}{'…' if len(value) > _MOST_BYTES else ''}"
    return printable(str(value))


def holds_images(field: UnischemaField) -> bool:
    """Return whether a field declares images.

    It declares images if it has an image codec, or `uint8` values with the shape of an image. The shape of an image is
    `(height, width)`, or `(height, width, n)` with 1, 3 or 4 channels; height and width may be variable.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> shapes = [(28, 28), (None, None, 3), (None, None, None), (9,)]
        >>> [holds_images(UnischemaField("x", "uint8", shape, NdarrayCodec())) for shape in shapes]
        [True, True, False, False]
    """
    if isinstance(field.codec, CompressedImageCodec):
        return True
    shape = field.shape
    return field.dtype == np.uint8 and (len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNELS))


def pixels_of(value: NDArray[Any]) -> NDArray[Any] | None:
    """Return the pixels of an image; None if the array is empty or has another shape.

    Returns:
        Shape (height, width), (height, width, 3) or (height, width, 4).
    """
    if value.ndim == 3 and value.shape[2] == 1:
        value = value[:, :, 0]
    fits = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in _CHANNELS)
    return value if fits and value.size else None


def shrunk(pixels: NDArray[Any], side: int) -> NDArray[np.float64]:
    """Downsample an image, so that its height and width are at most `side`.

    Each pixel of the result is the mean of an area; all areas are nearly equal.
    """
    height, width = pixels.shape[:2]
    shrink = max(1.0, max(height, width) / side)
    smaller: NDArray[Any] = pixels
    for axis, length in enumerate((height, width)):
        count = max(1, round(length / shrink))
        starts = np.arange(count) * length // count
        sums = np.add.reduceat(smaller, starts, axis=axis, dtype=np.float64)
        sizes = np.diff(np.append(starts, length))
        smaller = sums / sizes.reshape(-1, *[1] * (pixels.ndim - 1 - axis))
    return smaller


def png_bytes(pixels: NDArray[Any]) -> bytes:
    r"""Return a PNG file with exactly these pixels, without an image library.

    Args:
        pixels: Shape (height, width), (height, width, 3) or (height, width, 4), RGB or RGBA, of `uint8` or `uint16`.

    Example:
        >>> png_bytes(np.zeros((2, 3), np.uint8))[:8]
        b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape[:2]
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    size = pixels.dtype.itemsize
    step = channels * size
    # lines: shape (height, bytes of a line); 16-bit numbers are big-endian
    lines = np.ascontiguousarray(pixels, f">u{size}").view(np.uint8).reshape(height, width * step)
    # Filter 1: each byte is stored as the difference to the byte of the pixel on its left.
    filtered = np.ones((height, 1 + width * step), np.uint8)
    filtered[:, 1:] = lines
    filtered[:, 1 + step :] -= lines[:, :-step]
    header = struct.pack(">IIBBBBB", width, height, 8 * size, _COLOR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def drawable(value: Any) -> NDArray[Any] | None:
    """Return the part of a value that can be drawn as an image; None if it cannot be drawn.

    A `uint8` image and any matrix of numbers are drawn whole. For an array of more dimensions, the first index of the
    leading dimensions is drawn, such as the first frame of a video.

    Returns:
        Array of shape (height, width), (height, width, 3) or (height, width, 4).

    Example:
        >>> [None if shown is None else shown.shape for shown in map(drawable, (np.zeros((5, 4, 3)), np.zeros(4), "x"))]
        [(4, 3), None, None]
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf" or value.ndim < 2 or not value.size:
        return None
    array = np.ma.filled(value, 0)
    while True:
        pixels = pixels_of(array) if array.dtype == np.uint8 or array.ndim == 2 else None
        if pixels is not None:
            return pixels
        array = array[0]


def thumbnail_png(pixels: NDArray[Any], side: int) -> bytes:
    """Return a PNG file of an array from `drawable`; at most `side` pixels per side.

    Values from 0 to 255 keep their brightness. Other values, and arrays of 0 and 1, are scaled to this range.
    """
    with np.errstate(all="ignore"):  # infinite and very large numbers
        finite = np.nan_to_num(shrunk(pixels, side), nan=0.0, posinf=0.0, neginf=0.0)
        low, high = float(finite.min()), float(finite.max())
        if low < 0 or high > 255 or high <= 1:
            finite = np.nan_to_num((finite - low) * (255 / (high - low if high > low else 1)), posinf=0.0)
    return png_bytes(np.rint(finite).astype(np.uint8))


def data_uri(png: bytes) -> str:
    """Return a PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
