"""Cells of a table of samples: a stored value as text, a thumbnail, a small chart or an audio player.

Sizes are checked before a value is decoded. A value that cannot be shown becomes a cell with the reason.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.images.image_header import ImageError, is_image_file, read_header
from petastore.codecs.images.image_pixels import decode_into
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import decode_cells
from petastore.decoding.display import data_uri, drawable, in_words, shape_in_words, thumbnail_png
from petastore.errors import PetastoreError
from petastore.schema.field import UnischemaField
from petastore.view.charts import line

__all__ = ["MOST_CELL_BYTES", "Cell", "audio_type", "cell_of", "full_image", "time_text", "value_of"]

MOST_CELL_BYTES = 16 * 1024 * 1024
"""Maximum stored and decoded bytes of a cell that is shown: as many as an image of 5 megapixels has."""

_SIDE = 96
"""Pixels of the longer side of a thumbnail."""

_FULL_SIDE = 1024
"""Pixels of the longer side of an image that is shown alone."""

_CHARACTERS = 300
"""Maximum characters of a text in a table."""

_AUDIO = {b"fLaC": "audio/flac", b"OggS": "audio/ogg", b"ID3": "audio/mpeg"}


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Value in the form that a page shows; HTML from a dataset is escaped."""

    kind: Literal["text", "number", "missing", "image", "chart", "audio", "problem"]
    text: str
    """The value, a caption, or the reason why it is not shown."""
    picture: str = ""
    """The PNG of an image as a data URI, or the SVG of a chart."""


def cell_of(stored: Any, field: UnischemaField) -> Cell:
    """Return what a table shows for one stored value.

    Args:
        stored: A `pyarrow.Array` of one stored cell.
        field: Field of the column.

    Example:
        >>> cell_of(pa.array(["<b>wren</b>"]), UnischemaField("name", "str"))
        Cell(kind='text', text='<b>wren</b>', picture='')
        >>> cell_of(pa.array([None], "float64"), UnischemaField("grams", "float64", nullable=True)).kind
        'missing'
    """
    try:
        size = _stored_bytes(stored)
        if size > MOST_CELL_BYTES:
            return Cell("problem", f"{size:,} bytes stored, more than {MOST_CELL_BYTES:,}: not decoded")
        return _cell(value_of(stored, field), field)
    except (PetastoreError, ValueError, pa.ArrowException, MemoryError) as problem:
        return Cell("problem", str(problem)[:_CHARACTERS])


def value_of(stored: Any, field: UnischemaField) -> Any:
    """Return the decoded value of one stored cell; None if it is missing.

    Raises:
        DecodeError: The cell does not match its field, or is larger than `MOST_CELL_BYTES` once decoded.
    """
    return decode_cells(stored, field, codec_of(field), max_cell_bytes=MOST_CELL_BYTES).value(0)


def audio_type(value: Any) -> str | None:
    """Return the content type of bytes that begin as a WAV, FLAC, Ogg or MP3 file; None for other values.

    Example:
        >>> audio_type(b"RIFF....WAVEfmt "), audio_type(b"fLaC...."), audio_type(b"RIFF....AVI ")
        ('audio/wav', 'audio/flac', None)
    """
    if not isinstance(value, bytes):
        return None
    if value[:4] == b"RIFF" and value[8:12] == b"WAVE":
        return "audio/wav"
    # A frame of MPEG audio begins with 11 bits set; then version 1, 2 or 2.5 and layer III.
    if len(value) > 3 and value[0] == 0xFF and value[1] & 0xE6 == 0xE2 and value[1] & 0x18 != 0x08:
        return "audio/mpeg"
    return next((kind for magic, kind in _AUDIO.items() if value.startswith(magic)), None)


def time_text(value: Any) -> str:
    """Return a NumPy time as text, without a fraction of zero.

    Example:
        >>> time_text(np.datetime64("2026-01-31T12:00", "us"))
        '2026-01-31 12:00:00'
    """
    return re.sub(r"\.0+$", "", str(value)).replace("T", " ")


def full_image(value: Any) -> bytes | None:
    """Return an image as a PNG of at most 1,024 pixels a side, encoded by this library; None for other values.

    Raises:
        ImageError: The bytes are those of a damaged image.
        MissingExtraError: The image library is not installed.
    """
    pixels = _pixels(value)
    return None if pixels is None else thumbnail_png(pixels, _FULL_SIDE)


def _stored_bytes(stored: Any) -> int:
    if pa.types.is_dictionary(stored.type):
        stored = stored.dictionary_decode()
    return int(stored.nbytes)


def _cell(value: Any, field: UnischemaField) -> Cell:
    if value is None:
        return Cell("missing", "null")
    kind = audio_type(value)
    if kind is not None:
        return Cell("audio", f"{kind}, {len(value):,} bytes")
    pixels = _pixels(value)
    if pixels is not None:
        caption = (
            in_words(value, "bytes") if isinstance(value, bytes) else f"{value.dtype} {shape_in_words(value.shape)}"
        )
        return Cell("image", caption[:_CHARACTERS], data_uri(thumbnail_png(pixels, _SIDE)))
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.size > 2 and value.dtype.kind in "biuf":
        numbers = np.ma.filled(value, 0)
        caption = f"{value.dtype} {shape_in_words(value.shape)}, {numbers.min():.4g} … {numbers.max():.4g}"
        return Cell("chart", caption, line(numbers))
    text = time_text(value) if isinstance(value, np.datetime64) else in_words(value, field.dtype_name)
    text = text if len(text) <= _CHARACTERS else f"{text[:_CHARACTERS]}… ({len(str(value)):,} characters)"
    return Cell("number" if isinstance(value, (int, float, np.generic)) else "text", text)


def _pixels(value: Any) -> NDArray[Any] | None:
    """Return the pixels of an array or of the bytes of an image file; None for other values."""
    return _pixels_of_file(np.frombuffer(value, np.uint8)) if isinstance(value, bytes) else drawable(value)


def _pixels_of_file(file: NDArray[np.uint8]) -> NDArray[Any] | None:
    if not is_image_file(file):
        return None
    header = read_header(file)
    out = np.empty(header.shape, header.dtype)
    if out.nbytes > MOST_CELL_BYTES:
        raise ImageError(f"a decoded image must take at most {MOST_CELL_BYTES:,} bytes to be shown, got {out.nbytes:,}")
    decode_into(file, header, out)
    return out
