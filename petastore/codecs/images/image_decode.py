"""ImageDecode: crop, resize or convert images while they are decoded.

A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if the result is at least as large as the requested size, and then
resized. An image of half the size has a quarter of the pixels to compute (decisions/0004).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.images.image_header import (
    MAX_PIXELS,
    Header,
    ImageError,
    checked_header,
    declared_header,
    decode_into,
    exif_orientation,
    opencv,
)
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.schema.field import UnischemaField

__all__ = ["WHOLE", "ImageDecode", "ImageMode", "part_bytes", "read_image", "read_images"]

ImageMode: TypeAlias = Literal["rgb", "gray"]
"""The color mode of decoded images."""

_SHRINKS = (8, 4, 2)
_LEAST_SIDE_TO_SHRINK = 16
"""Minimum pixels of the longer side of a JPEG that is decoded at a smaller scale.

Smaller images may have the same rounded size at several scales, so that the scale would be ambiguous.
"""

_FLIPS = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 5: (1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
"""Slice steps (rows, columns) that undo each EXIF orientation: -1 reverses an axis.

For orientations 5 to 8, the two axes are swapped before.
"""

_LARGEST_STEP = 1.5
"""Largest factor by which linear interpolation shrinks a side.

Up to this factor, it is as close to an ideal filter as area averaging, and takes a fifth of the time. Above it, linear
interpolation would skip pixels.
"""

Scratch: TypeAlias = dict[tuple[tuple[int, ...], np.dtype[Any]], NDArray[Any]]
"""Memory for intermediate images, by shape and dtype.

It is reused, because page faults of new memory would take as long as decoding.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDecode:
    """Options to crop, resize or convert images while they are decoded.

    Pass them to a reader as `decode={"image": ImageDecode(…)}`, by field name. The region is cropped first, then
    resized, then converted to gray or RGB. With `size` or `region`, images of different sizes get the same shape, so
    that a batch has them as one array.

    With `size`, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if this is not smaller than the result, and then
    resized. With a region, its borders must be multiples of 2, 4 or 8 for this. Decoding at a smaller size is faster,
    but not bit-exact: photographs differ by 2 to 6 of 255 levels on average. Without `size`, pixels are exact.

    Args:
        size: (height, width) in pixels; the aspect ratio is not kept. A side is resized by area averaging if it becomes
            more than 1.5 times smaller, otherwise by linear interpolation.
        region: (top, left, height, width) in pixels of the stored image: rows [top, top + height), columns [left, left
            + width). An image that does not contain the region raises `DecodeError`.
        mode: `"gray"` decodes luminance only, shape (height, width): 0.299 red + 0.587 green + 0.114 blue. JPEG stores
            luminance, so its colors are not decoded. `"rgb"` decodes gray, color and CMYK files to (height, width, 3),
            also if the field declares (height, width). It is not needed if the field declares three channels. None
            keeps the field's mode.
        exif_orientation: Whether to rotate JPEGs by their EXIF orientation, before cropping. False reads pixels as
            stored.

    Raises:
        InvalidArgumentError: The size, region or mode is invalid.

    Example:
        >>> ImageDecode(size=(128, 128))
        ImageDecode(size=(128, 128), region=None, mode=None, exif_orientation=False)
        >>> ImageDecode(region=(0, -8, 64, 64))
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: region must be (top, left, height, width) in ints, top and left at least
            0, height and width at least 1, got (0, -8, 64, 64)
    """

    size: tuple[int, int] | None = None
    """(height, width) of the result; None keeps the stored size."""

    region: tuple[int, int, int, int] | None = None
    """(top, left, height, width) in the stored image; None means all."""

    mode: ImageMode | None = None
    """`"rgb"` or `"gray"`; None keeps the mode of the field."""

    exif_orientation: bool = False
    """Whether to rotate images by their EXIF orientation."""

    def __post_init__(self) -> None:
        size, region = _whole(self.size, (1, 1)), _whole(self.region, (0, 0, 1, 1))
        if size == ():
            raise InvalidArgumentError(f"size must be (height, width) in ints of at least 1, got {self.size!r}")
        if region == ():
            raise InvalidArgumentError(
                "region must be (top, left, height, width) in ints, top and left at least 0, height and width at "
                "least 1, got "
                f"{self.region!r}"
            )
        if size is not None and size[0] * size[1] > MAX_PIXELS:
            raise InvalidArgumentError(f"size must be at most {MAX_PIXELS:,} pixels, got {self.size!r}")
        if self.mode is not None and self.mode not in get_args(ImageMode):
            raise InvalidArgumentError(f"mode must be 'rgb', 'gray' or None, got {self.mode!r}")
        if not isinstance(self.exif_orientation, (bool, np.bool_)):
            raise InvalidArgumentError(f"exif_orientation must be True or False, got {self.exif_orientation!r}")
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "region", region)
        object.__setattr__(self, "exif_orientation", bool(self.exif_orientation))

    def shape_of(self, stored: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the shape of decoded images for a stored shape.

        Args:
            stored: (height, width) or (height, width, 3), where sizes may be None.

        Raises:
            InvalidArgumentError: The region exceeds images of this shape.

        Example:
            >>> ImageDecode(size=(64, 64)).shape_of((None, None, 3)), ImageDecode(mode="gray").shape_of((480, None, 3))
            ((64, 64, 3), (480, None))
        """
        sides = stored[:2]
        if self.exif_orientation and sides[0] != sides[1]:
            sides = (None, None)  # EXIF orientation may swap the sides
        return self.part_shape((*sides, *stored[2:]))

    def part_shape(self, upright: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Return the shape of the decoded image: cropped, resized and converted.

        Args:
            upright: Shape of the stored image after its rotation by EXIF orientation, if that is requested.

        Raises:
            InvalidArgumentError: The region exceeds images of this shape.
        """
        sides = upright[:2]
        if self.region is not None:
            top, left, height, width = self.region
            for begin, length, side in zip((top, left), (height, width), sides, strict=True):
                if side is not None and begin + length > side:
                    raise InvalidArgumentError(
                        f"region must lie inside images of shape {upright}, got {self.region} as (top, left, height, "
                        "width)"
                    )
            sides = (height, width)
        sides = self.size or sides
        return sides if self.mode == "gray" or (len(upright) == 2 and self.mode is None) else (*sides, 3)


def _whole(numbers: Any, least: tuple[int, ...]) -> tuple[Any, ...] | None:
    """Return the numbers as a tuple of ints; None stays None.

    Return an empty tuple if there are too few or too many numbers, or if one is not an int or below its minimum.
    """
    if numbers is None:
        return None
    if not isinstance(numbers, (tuple, list)) or len(numbers) != len(least):
        return ()
    for number, lowest in zip(numbers, least, strict=True):
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)) or number < lowest:
            return ()
    return tuple(int(number) for number in numbers)


WHOLE = ImageDecode()
"""Options that decode the whole image as it is stored."""


def read_images(
    cells: Sequence[NDArray[np.uint8]], stored: UnischemaField, wanted: ImageDecode, out: NDArray[Any]
) -> None:
    """Decode the selected region of each image into its output array.

    Args:
        cells: Image files.
        stored: Field that describes the stored files.
        wanted: Region to decode of each image, and the size of the result.
        out: C-contiguous array `(rows, *shape)` for the results; or an object array `(rows,)` for images of any size.

    Raises:
        DecodeError: As `read_image` raises ImageError; `row` is set.
        MissingExtraError: The library is not installed.
    """
    scratch: Scratch = {}
    is_free = out.dtype.hasobject
    for row, cell in enumerate(cells):
        try:
            if is_free:
                out[row] = read_image(cell, stored, wanted, None, scratch)
            else:
                read_image(cell, stored, wanted, out[row], scratch)
        except ImageError as problem:
            raise DecodeError(
                f"the cell is not an image that fits the field: {problem}. Skip bad rows with on_error='skip'",
                column=stored.name,
                row=row,
            ) from None


def read_image(
    cell: NDArray[np.uint8],
    stored: UnischemaField,
    wanted: ImageDecode,
    out: NDArray[Any] | None = None,
    scratch: Scratch | None = None,
) -> NDArray[Any]:
    """Decode the selected region of an image, and return it in `out` or in new memory.

    Args:
        cell: Image file.
        stored: Field that describes the stored file.
        wanted: Region to decode, and the size of the result.
        out: C-contiguous array with the shape of the result; None allocates one.
        scratch: Scratch memory of the previous call; None allocates it.

    Raises:
        ImageError: The bytes are damaged, have another dtype or shape than declared, or the region is outside the
            image.
        MissingExtraError: The library is not installed.
    """
    header = checked_header(cell, stored)
    turn = exif_orientation(cell) if wanted.exif_orientation else 1
    upright = header
    if turn > 1:
        height, width = header.shape[:2]
        sides = (width, height) if turn > 4 else (height, width)
        upright = Header("upright", (*sides, *header.shape[2:]), header.dtype)
    if out is None:
        shape: Any = wanted.part_shape(upright.shape)
        out = np.empty(shape, header.dtype)
    path = _decode_path(upright, wanted, out.shape)
    if path.is_all and turn == 1:
        decode_into(cell, header, out, shrink=path.shrink)
        return out
    image = _scratch_image({} if scratch is None else scratch, path.decoded if turn == 1 else header.shape, out.dtype)
    decode_into(cell, header, image, shrink=path.shrink)
    if turn > 1:
        rows, columns = _FLIPS[turn]
        image = np.ascontiguousarray((image.swapaxes(0, 1) if turn > 4 else image)[::rows, ::columns])
    _resize(image[path.rows, path.columns], out)
    return out


def _scratch_image(scratch: Scratch, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if (shape, dtype) not in scratch:
        scratch.clear()
        scratch[shape, dtype] = np.empty(shape, dtype)
    return scratch[shape, dtype]


def part_bytes(header: Header, stored: UnischemaField, wanted: ImageDecode) -> int:
    """Return about how many bytes of pixels `read_image` needs for an image.

    This is the size of the decoded image, or that of the result if it is larger. For EXIF rotation, the whole image
    counts twice.

    Raises:
        ImageError: `read_image` rejects files with the header.
    """
    header = declared_header(header, stored)
    itemsize = header.dtype.itemsize
    if wanted.exif_orientation:  # EXIF rotation needs the whole image
        return itemsize * max(2 * math.prod(header.shape), 3 * math.prod(wanted.size or ()))
    try:
        shape: Any = wanted.part_shape(header.shape)
    except InvalidArgumentError as problem:
        raise ImageError(str(problem)) from None
    return max(math.prod(_decode_path(header, wanted, shape).decoded), math.prod(shape)) * itemsize


class _DecodePath(NamedTuple):
    """Decoding steps for images with the same header."""

    shrink: int
    """Factor by which the decoder shrinks each side of the image."""

    decoded: tuple[int, ...]
    """Shape that the decoder returns."""

    rows: slice
    """Wanted rows of the decoded image."""

    columns: slice
    """Wanted columns of the decoded image."""

    is_all: bool
    """Whether the result is the whole decoded image, which is then decoded directly into the output array."""


@functools.lru_cache(maxsize=1024)
def _decode_path(header: Header, wanted: ImageDecode, shape: tuple[int, ...]) -> _DecodePath:
    height, width = header.shape[:2]
    region = wanted.region or (0, 0, height, width)
    if region[0] + region[2] > height or region[1] + region[3] > width:
        raise ImageError(
            f"the {header.format} must contain the region {region} (top, left, height, width), got {height}×{width} "
            "pixels"
        )
    shrink = _shrink(region, wanted.size or region[2:], header)
    # Only JPEG can decode brightness without colors.
    decoded = (-(-height // shrink), -(-width // shrink), *(shape if header.format == "jpeg" else header.shape)[2:])
    top, left, rows, columns = (-(-border // shrink) for border in region)
    is_all = shape == decoded and region == (0, 0, height, width)
    return _DecodePath(shrink, decoded, slice(top, top + rows), slice(left, left + columns), is_all)


def _shrink(region: tuple[int, ...], size: tuple[int, ...], header: Header) -> int:
    """Return the factor by which the JPEG decoder shrinks each side: 1, 2, 4 or 8.

    It is the largest factor with which the region has whole pixels and is not smaller than `size`. It is 1 for images
    that are not JPEG, or too small to shrink.
    """
    height, width = header.shape[:2]
    if header.format != "jpeg" or max(height, width) < _LEAST_SIDE_TO_SHRINK:
        return 1
    top, left, rows, columns = region
    for shrink in _SHRINKS:
        is_enough = rows >= size[0] * shrink and columns >= size[1] * shrink
        # A region must end at a block border, or at the border of the image, where the last block may be incomplete.
        whole_rows = top % shrink == 0 and (rows % shrink == 0 or top + rows == height)
        whole_columns = left % shrink == 0 and (columns % shrink == 0 or left + columns == width)
        if is_enough and whole_rows and whole_columns:
            return shrink
    return 1


def _resize(image: NDArray[Any], out: NDArray[Any]) -> None:
    """Resize an image into `out`, and convert it to gray if `out` has no channels."""
    cv2 = opencv()
    resized = image
    if image.shape[:2] != out.shape[:2]:
        steps = [old / new for old, new in zip(image.shape[:2], out.shape[:2], strict=True)]
        interpolation = cv2.INTER_AREA if max(steps) > _LARGEST_STEP else cv2.INTER_LINEAR
        resized = out if image.ndim == out.ndim else np.empty((*out.shape[:2], 3), out.dtype)
        cv2.resize(image, (out.shape[1], out.shape[0]), dst=resized, interpolation=interpolation)
    if resized.ndim > out.ndim:
        cv2.cvtColor(resized, cv2.COLOR_RGB2GRAY, dst=out)
    elif resized is not out:
        np.copyto(out, resized)
