"""A part of an image at another size, decoded no further than that needs.

Most of what a JPEG costs beyond reading its bits is turning frequencies into pixels, and a picture of half the size
needs a quarter of them. So a JPEG is decoded at 1/2, 1/4 or 1/8 where that is not below what is wanted, and what is
left to do is resized (docs/decisions/0004).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.images.image_files import (
    Header,
    ImageError,
    begins_as_jpeg,
    checked_header,
    common_header,
    declared_header,
    decode_into,
    decode_jpegs,
    each_image,
    exif_orientation,
    opencv,
)
from petastore.codecs.images.image_hint import WHOLE, ImageDecode
from petastore.errors import InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["part_bytes", "read_part", "read_parts_into"]

_SHRINKS = (8, 4, 2)
_LEAST_SIDE_TO_SHRINK = 16
"""Pixels; the sizes of smaller images round to the same at several scales."""

_FLIPS = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
"""Steps along rows and columns for each EXIF orientation, after the axes of 5 to 8 are swapped."""

_LARGEST_STEP = 1.5
"""How many times smaller a side may become in one step of linear interpolation. It is then as close to an ideal filter
as the mean of areas is, at a fifth of the time; beyond, it skips pixels."""


def read_parts_into(
    cells: Sequence[NDArray[np.uint8]], stored: UnischemaField, wanted: ImageDecode, out: NDArray[Any]
) -> None:
    """The parts of images that are wanted into their places.

    Args:
        cells: The files.
        stored: What was declared of them.
        wanted: Which part of each, and at what size.
        out: Shape `(rows, *shape)` of what comes out, C-contiguous; or `(rows,)` of objects, for images of any size.

    Raises:
        DecodeError: As `read_part`; `row` is set.
        MissingExtraError: The library is not installed.
    """
    between = _Between()
    is_free = out.dtype.hasobject

    def read(row: int, cell: NDArray[np.uint8]) -> None:
        if is_free:
            out[row] = read_part(cell, stored, wanted, None, between)
        else:
            read_part(cell, stored, wanted, out[row], between)

    if is_free or not _decoded_in_place(cells, stored, wanted, out):
        each_image(read, cells, stored.name)


def _decoded_in_place(
    cells: Sequence[NDArray[np.uint8]], stored: UnischemaField, wanted: ImageDecode, out: NDArray[Any]
) -> bool:
    """Decodes images of one header straight to what is wanted; False where that is more work, or one is damaged."""
    if not len(cells) or wanted.exif_orientation or not begins_as_jpeg(cells[0]):
        return False  # at once: whoever reads files one by one looks at all headers, too
    header = common_header(cells, stored)
    if header is None or header.format != "jpeg":
        return False
    try:
        way = _way(header, wanted, out.shape[1:])
    except ImageError:
        return False
    return way.is_all and decode_jpegs(cells, out, shrink=way.shrink)


def read_part(
    cell: NDArray[np.uint8],
    stored: UnischemaField,
    wanted: ImageDecode,
    out: NDArray[Any] | None = None,
    between: _Between | None = None,
) -> NDArray[Any]:
    """The part of an image that is wanted: `out`, or new memory.

    Args:
        cell: The file.
        stored: What was declared of it.
        wanted: Which part, and at what size.
        out: Where to, of the shape that comes out and C-contiguous; None takes new memory.
        between: Memory for what is not wanted of the image, from call to call.

    Raises:
        ImageError: The bytes are damaged, hold another dtype or shape than declared, or the image does not reach as far
            as the region.
        MissingExtraError: The library is not installed.
    """
    header = checked_header(cell, stored)
    turn = exif_orientation(cell) if wanted.exif_orientation else 1
    upright = header if turn == 1 else _turned_header(header, turn)
    if out is None:
        shape: Any = header.shape if wanted is WHOLE else wanted.part_shape(upright.shape)
        out = np.empty(shape, header.dtype)
    if wanted is WHOLE:  # most are, and the smallest of them are decoded in a few microseconds
        decode_into(cell, header, out)
        return out
    way = _way(upright, wanted, out.shape)
    if way.is_all and turn == 1:
        decode_into(cell, header, out, shrink=way.shrink)
        return out
    image = (between or _Between()).empty(way.decoded if turn == 1 else header.shape, header.dtype)
    decode_into(cell, header, image, shrink=way.shrink)
    _finish((image if turn == 1 else np.ascontiguousarray(_turned(image, turn)))[way.rows, way.columns], out)
    return out


def _turned_header(header: Header, turn: int) -> Header:
    """Return the header that the file would have if its pixels were upright."""
    height, width = header.shape[:2]
    return Header("upright", (*((width, height) if turn > 4 else (height, width)), *header.shape[2:]), header.dtype)


def _turned(image: NDArray[Any], turn: int) -> NDArray[Any]:
    """An image turned upright from one of the eight orientations of EXIF, as a view."""
    rows, columns = _FLIPS[turn]
    upright = image.swapaxes(0, 1) if turn > 4 else image
    return upright[::rows, ::columns]


def part_bytes(header: Header, stored: UnischemaField, wanted: ImageDecode) -> int:
    """Bytes of the pixels that `read_part` decodes of files of a header, or gives, if that is more.

    Raises:
        ImageError: It refuses such files.
    """
    header = declared_header(header, stored)
    whole = math.prod(header.shape) * header.dtype.itemsize
    try:
        shape: Any = wanted.size if wanted.exif_orientation else wanted.part_shape(header.shape)
    except InvalidArgumentError as problem:
        raise ImageError(str(problem)) from None
    if wanted.exif_orientation:  # decoded whole, and turned
        return max(2 * whole, math.prod(shape or ()) * 3 * header.dtype.itemsize)
    return max(math.prod(_way(header, wanted, shape).decoded), math.prod(shape)) * header.dtype.itemsize


class _Between:
    """Memory for one image after the other: fresh memory costs as much as decoding what is put there."""

    def __init__(self) -> None:
        self._image: NDArray[Any] = np.empty(0, np.uint8)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array whose values are arbitrary; the one that was given before must not be used any more."""
        if self._image.shape != shape or self._image.dtype != dtype:
            self._image = np.empty(shape, dtype)
        return self._image


class _Way(NamedTuple):
    """How images of one header are decoded."""

    shrink: int
    """How many times smaller."""

    decoded: tuple[int, ...]
    """Shape that decoding gives."""

    rows: slice
    """Which of its rows are wanted."""

    columns: slice
    """Which of its columns are wanted."""

    is_all: bool
    """Whether it is what is wanted, so that it is decoded into its place."""


@functools.lru_cache(maxsize=1024)
def _way(header: Header, wanted: ImageDecode, shape: tuple[int, ...]) -> _Way:
    """How to get images of a shape."""
    height, width = header.shape[:2]
    region = wanted.region or (0, 0, height, width)
    if region[0] + region[2] > height or region[1] + region[3] > width:
        raise ImageError(f"the {header.format} is {height}×{width}, and the region {region} reaches beyond it")
    shrink = _shrink(region, wanted.size or region[2:], header)
    # Only of a JPEG is brightness to be had without colours.
    decoded = (-(-height // shrink), -(-width // shrink), *(shape if header.format == "jpeg" else header.shape)[2:])
    top, left, rows, columns = (-(-border // shrink) for border in region)
    is_all = shape == decoded and region == (0, 0, height, width)
    return _Way(shrink, decoded, slice(top, top + rows), slice(left, left + columns), is_all)


def _shrink(region: tuple[int, ...], size: tuple[int, ...], header: Header) -> int:
    """How many times smaller a JPEG is decoded: never below the size, and only where the region begins on a pixel."""
    height, width = header.shape[:2]
    if header.format != "jpeg" or max(height, width) < _LEAST_SIDE_TO_SHRINK:
        return 1
    top, left, rows, columns = region
    for shrink in _SHRINKS:
        is_enough = rows >= size[0] * shrink and columns >= size[1] * shrink
        # The last block may be cut off by the border of the image; elsewhere a region ends on a whole one.
        whole_rows = top % shrink == 0 and (rows % shrink == 0 or top + rows == height)
        whole_columns = left % shrink == 0 and (columns % shrink == 0 or left + columns == width)
        if is_enough and whole_rows and whole_columns:
            return shrink
    return 1


def _finish(image: NDArray[Any], out: NDArray[Any]) -> None:
    """Resizes, and takes the colours away where they are not wanted."""
    cv2 = opencv()
    resized = image
    if image.shape[:2] != out.shape[:2]:
        steps = [old / new for old, new in zip(image.shape[:2], out.shape[:2], strict=True)]
        how = cv2.INTER_AREA if max(steps) > _LARGEST_STEP else cv2.INTER_LINEAR
        resized = out if image.ndim == out.ndim else np.empty((*out.shape[:2], 3), out.dtype)
        cv2.resize(image, (out.shape[1], out.shape[0]), dst=resized, interpolation=how)
    if resized.ndim > out.ndim:
        cv2.cvtColor(resized, cv2.COLOR_RGB2GRAY, dst=out)
    elif resized is not out:
        np.copyto(out, resized)
