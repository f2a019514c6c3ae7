"""Images of a dataset for the eye: in half blocks on a terminal, and as PNG files.

A package such as rich-pixels would draw the half blocks as well, but brings Pillow, which nothing else here needs, and
knows neither 16 bits nor arrays. What is needed of it are the few lines of `thumbnail`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

from petastore.codecs.images.image_faces import ImageFaces
from petastore.codecs.images.image_files import image_bytes, opencv
from petastore.schema.field import UnischemaField

__all__ = ["holds_images", "pixels_of", "png", "thumbnail"]

_CHANNELS = (1, 3, 4)
"""Gray, colours, and colours with how opaque they are."""

_UPPER_HALF = "▀"


def holds_images(field: UnischemaField) -> bool:
    """Whether a field declares images: it has an image codec, or values are `uint8` and shaped like an image.

    Shaped like an image is `(height, width)`, `(height, width, 1)`, `(height, width, 3)` or `(height, width, 4)`, where
    height and width may be free.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> shapes = [(28, 28), (None, None, 3), (None, None, None), (9,)]
        >>> [holds_images(UnischemaField("x", "uint8", shape, NdarrayCodec())) for shape in shapes]
        [True, True, False, False]
    """
    if isinstance(field.codec, ImageFaces):
        return True
    shape = field.shape
    return field.dtype == np.uint8 and (len(shape) == 2 or (len(shape) == 3 and shape[2] in _CHANNELS))


def pixels_of(value: NDArray[Any]) -> NDArray[Any] | None:
    """The pixels of an image; None where there are none, or not as they are drawn.

    Returns:
        Shape (height, width), (height, width, 3) or (height, width, 4).
    """
    if value.ndim == 3 and value.shape[2] == 1:
        value = value[:, :, 0]
    fits = value.ndim == 2 or (value.ndim == 3 and value.shape[2] in _CHANNELS)
    return value if fits and value.size else None


def thumbnail(pixels: NDArray[Any], side: int) -> Text:
    """An image in half blocks: each character is two pixels, one over the other, which are about squares so.

    Images that are larger become smaller; a pixel is the mean of those it stands for. Those of 16 bits are stretched,
    so that their brightest pixel is white. What is not opaque stands before black.

    Args:
        pixels: As `pixels_of` gives them.
        side: The most pixels of height and width.

    Example:
        >>> print(thumbnail(np.zeros((4, 3), "uint8"), 32))
        ▀▀▀
        ▀▀▀
    """
    colors = _colors(_smaller(pixels, side), brightest=255 if pixels.dtype == np.uint8 else max(int(pixels.max()), 1))
    lines = []
    for top in range(0, len(colors), 2):
        line = Text()
        below = colors[top + 1] if top + 1 < len(colors) else [None] * len(colors[top])
        for upper, lower in zip(colors[top], below, strict=True):
            line.append(_UPPER_HALF, Style(color=upper, bgcolor=lower))
        lines.append(line)
    return Text("\n").join(lines)


def _smaller(pixels: NDArray[Any], side: int) -> NDArray[np.float64]:
    """Means over areas that are as equal as whole pixels let them be, of an image of this side at most."""
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


def _colors(pixels: NDArray[np.float64], *, brightest: int) -> list[list[Color]]:
    """Of each pixel its colour."""
    scaled = pixels * (255 / brightest)
    if scaled.ndim == 2:
        scaled = np.repeat(scaled[:, :, None], 3, axis=2)
    elif scaled.shape[2] == 4:
        scaled = scaled[:, :, :3] * scaled[:, :, 3:] / 255
    levels = np.rint(scaled).astype(np.uint8).tolist()
    return [[Color.from_rgb(*rgb) for rgb in line] for line in levels]


def png(pixels: NDArray[Any]) -> bytes:
    """The bytes of a PNG file with these pixels, each as it is.

    Args:
        pixels: As `pixels_of` gives them, of `uint8` or `uint16`.

    Raises:
        MissingExtraError: OpenCV is not installed.
    """
    if pixels.ndim == 2 or pixels.shape[2] == 3:
        return image_bytes(pixels, "png", 0)
    cv2 = opencv()
    _, encoded = cv2.imencode(".png", cv2.cvtColor(np.ascontiguousarray(pixels), cv2.COLOR_RGBA2BGRA))
    return bytes(encoded.tobytes())
