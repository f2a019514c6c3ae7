"""Cells of a table of samples: a value as text, a thumbnail or a small chart.

The module also draws charts as SVG and PNG.

Sizes are checked before a value is decoded. A value that cannot be shown becomes a cell with the reason.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.codecs.images.image_header import ImageError, decode_into, is_image_file, read_header
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import decode_cells
from petastore.decoding.display import data_uri, drawable, in_words, png_bytes, shape_in_words, thumbnail_png
from petastore.errors import PetastoreError
from petastore.plan.report.feeds import Feeds
from petastore.schema.field import UnischemaField

__all__ = [
    "MOST_CELL_BYTES",
    "Cell",
    "bars",
    "cell_of",
    "feeds_image",
    "full_image",
    "line",
    "time_text",
    "value_of",
]


MOST_CELL_BYTES = 16 * 1024 * 1024
"""Maximum stored and decoded bytes of a cell that is shown: as many as an image of 5 megapixels has."""

_SIDE = 96
"""Pixels of the longer side of a thumbnail."""

_FULL_SIDE = 1024
"""Pixels of the longer side of an image that is shown alone."""

_CHARACTERS = 300
"""Maximum characters of a text in a table."""


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """Value in the form in which a page shows it.

    Templates escape the text of a cell.
    """

    kind: Literal["text", "number", "missing", "image", "chart", "problem"]
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


def time_text(value: Any) -> str:
    """Return a NumPy time as text, without a fraction of zero.

    Example:
        >>> time_text(np.datetime64("2026-01-31T12:00", "us"))
        '2026-01-31 12:00:00'
    """
    return re.sub(r"\.0+$", "", str(value)).replace("T", " ")


def full_image(value: Any) -> bytes | None:
    """Return an image as a PNG of at most 1,024 pixels a side; None for other values.

    The pixels are encoded again, so the stored file itself is never sent to the browser.

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
    """Return the pixels of an array, or of the bytes of an image file.

    Return None for other values.
    """
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


_WIDTH, _HEIGHT = 240, 64
_POINTS = 240
_LARGEST = 1e307
"""Numbers above this are scaled down before drawing, because their differences may be infinite."""

_RANKS = np.array(
    [
        [31, 119, 180], [255, 127, 14], [44, 160, 44], [214, 39, 40], [148, 103, 189],
        [140, 86, 75], [227, 119, 194], [127, 127, 127], [188, 189, 34], [23, 190, 207],
    ],
    dtype=np.uint8,
)  # fmt: skip
"""Colors of the ranks, repeated after ten ranks; they are the colors of matplotlib."""

_IMAGE_HEIGHT = 240


def bars(heights: Sequence[float] | NDArray[Any], labels: Sequence[str] | None = None) -> str:
    """Return a bar chart as SVG.

    Args:
        heights: Heights from 0.
        labels: Text that a browser shows when the pointer is over a bar; escaped here.

    Example:
        >>> bars([1, 2], ["<a>", "b"]).count("<rect"), "&lt;a&gt;" in bars([1, 2], ["<a>", "b"])
        (2, True)
    """
    most, count = max(float(max(heights, default=0)), 1e-300), max(len(heights), 1)
    width = _WIDTH / count
    parts = []
    for number, height in enumerate(heights):
        tall = max(_HEIGHT * float(height) / most, 1 if height else 0)
        title = "" if labels is None else f"<title>{html.escape(labels[number])}</title>"
        parts.append(
            f'<rect x="{number * width:.2f}" y="{_HEIGHT - tall:.2f}" width="{max(width - 1, width * 0.8):.2f}" '
            f'height="{tall:.2f}">{title}</rect>'
        )
    return _svg("".join(parts), "bars")


def line(values: NDArray[Any]) -> str:
    """Return a one-dimensional array as a line in SVG.

    A long array is drawn as the minimum and maximum of each part.

    Example:
        >>> line(np.array([0.0, 1.0, 0.0])).count("polyline")
        1
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    if len(numbers) > _POINTS:
        starts = np.arange(_POINTS // 2) * len(numbers) // (_POINTS // 2)
        parts = [np.minimum.reduceat(numbers, starts), np.maximum.reduceat(numbers, starts)]
        numbers = np.stack(parts, axis=1).ravel()
    numbers = numbers / 4 if np.abs(numbers).max() > _LARGEST else numbers
    low, high = float(numbers.min()), float(numbers.max())
    across = np.linspace(0, _WIDTH, len(numbers))
    down = (_HEIGHT - 2) * ((high - numbers) / (high - low if high > low else 1)) + 1
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across.tolist(), down.tolist(), strict=True))
    return _svg(f'<polyline points="{points}"/>', "line")


def _svg(inside: str, kind: str) -> str:
    return f'<svg class="{kind}" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img">{inside}</svg>'


def feeds_image(feeds: Feeds) -> str:
    """Draw which row groups each batch reads from, as a PNG.

    Batches are drawn from left to right, row groups from top to bottom, and ranks as colors.

    Returns:
        A PNG as a data URI, transparent where a batch has no rows of a row group. With at most ten ranks, each batch
        has one column of pixels for each rank; with more, a single column.
    """
    groups = max(feeds.first_row_groups[-1], 1)
    columns = feeds.num_ranks if feeds.num_ranks <= len(_RANKS) else 1
    height, width = min(groups, _IMAGE_HEIGHT), max(len(feeds.sampled_batches), 1) * columns
    image = np.zeros((height, width, 4), np.uint8)
    down = feeds.row_groups * height // groups
    across = np.searchsorted(feeds.sampled_batches, feeds.batches) * columns + feeds.ranks % columns
    image[down, across, :3] = _RANKS[feeds.ranks % len(_RANKS)]
    image[down, across, 3] = 255
    return data_uri(png_bytes(image))
