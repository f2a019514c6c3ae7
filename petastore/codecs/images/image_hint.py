"""ImageDecode: which part of an image is wanted when it is read, and at what size; and the field that comes of it."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from petastore.codecs.images.image_files import MAX_PIXELS
from petastore.errors import InvalidArgumentError

__all__ = ["WHOLE", "ImageDecode", "ImageMode"]

ImageMode: TypeAlias = Literal["rgb", "gray"]
"""The color mode of decoded images."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDecode:
    """What is wanted of the images of a column when they are read, given as `decode={"image": ImageDecode(…)}`.

    The region is cut out first, then it is resized, then its colors are added or taken away. Columns whose images
    differ in size come out in one shape with a size or a region, so that batches hold them as one array.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that is not below what is wanted, and the rest is resized:
    quicker, and not bit for bit what resizing the whole image gives: on photographs the two differ by 2 to 6 levels of
    255 in the mean. With a region, that needs borders on whole multiples of 2, 4 or 8. Without `size`, pixels are
    exact.

    Args:
        size: (height, width) in pixels. Proportions are not kept. A side that becomes more than 1.5 times smaller is
            made of means of areas, else linear interpolation.
        region: (top, left, height, width) in pixels of the stored image: rows [top, top + height), columns
            [left, left + width). An image that does not reach as far cannot be decoded.
        gray: Brightness alone, (height, width): the mean of red, green and blue weighted by 0.299, 0.587 and 0.114. A
            JPEG stores it as such, and its colours are not decoded.
        mode: `"gray"` is `gray=True`. `"rgb"` gives (height, width, 3) for gray, color and CMYK files, also if a field
            declares (height, width). A field that declares three channels reads gray and CMYK files as RGB without it.
        exif_orientation: Whether images are turned upright as the EXIF data of JPEGs says, before the region is cut
            out. Without it pixels come as they are stored.

    Raises:
        InvalidArgumentError: No such size, region or mode.

    Example:
        >>> ImageDecode(size=(128, 128))
        ImageDecode(size=(128, 128), region=None, gray=False, mode=None, exif_orientation=False)
        >>> ImageDecode(region=(0, -8, 64, 64))
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: ImageDecode takes a region (top, left, height, width) of whole numbers,
        the first
            two from 0 and the others from 1, not (0, -8, 64, 64)
    """

    size: tuple[int, int] | None = None
    """(height, width) that comes out; None leaves it as it is."""

    region: tuple[int, int, int, int] | None = None
    """(top, left, height, width) in the stored image; None is all."""

    gray: bool = False
    """Whether colours are taken away."""

    mode: ImageMode | None = None
    """`"rgb"` or `"gray"`; None is what the field declares."""

    exif_orientation: bool = False
    """Whether images are turned as EXIF data says."""

    def __post_init__(self) -> None:
        size, region = _whole(self.size, (1, 1)), _whole(self.region, (0, 0, 1, 1))
        if size is not None and not size:
            raise InvalidArgumentError(
                f"ImageDecode takes a size (height, width) of whole numbers from 1, not {self.size!r}"
            )
        if region is not None and not region:
            raise InvalidArgumentError(
                "ImageDecode takes a region (top, left, height, width) of whole numbers, the first two from 0 and the "
                f"others from 1, not {self.region!r}"
            )
        if size is not None and size[0] * size[1] > MAX_PIXELS:
            raise InvalidArgumentError(f"ImageDecode takes a size of at most {MAX_PIXELS:,} pixels, not {self.size!r}")
        if not isinstance(self.gray, (bool, np.bool_)):
            raise InvalidArgumentError(f"ImageDecode takes gray=True or gray=False, not {self.gray!r}")
        if self.mode is not None and self.mode not in get_args(ImageMode):
            raise InvalidArgumentError(f"ImageDecode: mode must be 'rgb', 'gray' or None, got {self.mode!r}")
        if self.gray and self.mode == "rgb":
            raise InvalidArgumentError("ImageDecode: mode must not be 'rgb' where gray=True. Give one of them")
        if not isinstance(self.exif_orientation, (bool, np.bool_)):
            raise InvalidArgumentError(
                f"ImageDecode: exif_orientation must be True or False, got {self.exif_orientation!r}"
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "region", region)
        object.__setattr__(self, "gray", bool(self.gray) or self.mode == "gray")
        object.__setattr__(self, "mode", "gray" if self.gray else self.mode)
        object.__setattr__(self, "exif_orientation", bool(self.exif_orientation))

    def shape_of(self, stored: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape that comes out of images of a shape.

        Args:
            stored: (height, width) or (height, width, 3), where sizes may be None.

        Raises:
            InvalidArgumentError: The region reaches beyond images of this shape.

        Example:
            >>> ImageDecode(size=(64, 64)).shape_of((None, None, 3)), ImageDecode(gray=True).shape_of((480, None, 3))
            ((64, 64, 3), (480, None))
        """
        sides = stored[:2]
        if self.exif_orientation and sides[0] != sides[1]:
            sides = (None, None)  # the camera was held either way
        return self.part_shape((*sides, *stored[2:]))

    def part_shape(self, upright: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The shape that comes out of images that have a shape once they are upright.

        Raises:
            InvalidArgumentError: The region reaches beyond images of this shape.
        """
        sides = upright[:2]
        if self.region is not None:
            top, left, height, width = self.region
            for begin, length, side in zip((top, left), (height, width), sides, strict=True):
                if side is not None and begin + length > side:
                    raise InvalidArgumentError(
                        f"the region {self.region} reaches beyond images of shape {upright}; a region is "
                        "(top, left, height, width)"
                    )
            sides = (height, width)
        sides = self.size or sides
        return sides if self.gray or (len(upright) == 2 and self.mode is None) else (*sides, 3)


def _whole(numbers: Any, least: tuple[int, ...]) -> tuple[Any, ...] | None:
    """The numbers as a tuple of int; an empty one where they are not as many, or not whole, or too small."""
    if numbers is None:
        return None
    if not isinstance(numbers, (tuple, list)) or len(numbers) != len(least):
        return ()
    for number, lowest in zip(numbers, least, strict=True):
        if isinstance(number, (bool, np.bool_)) or not isinstance(number, (int, np.integer)) or number < lowest:
            return ()
    return tuple(int(number) for number in numbers)


WHOLE = ImageDecode()
"""All of an image, as it is stored."""
