"""Image libraries: OpenCV encodes PNG and JPEG and decodes PNG, simplejpeg decodes JPEG (docs/decisions/0004).

Both libraries are imported when the first image is encoded or decoded.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.codecs.images.image_header import Header, ImageError, check_chunks, has_inverted_inks
from petastore.errors import MissingExtraError

__all__ = ["decode_into", "image_bytes", "opencv"]

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
    """Decode the pixels of a file.

    Args:
        cell: The file.
        header: Header of the file.
        out: C-contiguous array of the header's dtype and shape; for a JPEG, an array without channels gets the
            brightness.
        shrink: For a JPEG, 2, 4 or 8: each block of this many pixels per side is decoded as one pixel, which is faster;
            sizes are rounded up. The image needs sides of at least 16 pixels.

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
        else:  # the library picks the smallest size that is not below the requested one
            colorspace = "GRAY" if out.ndim == 2 else "RGB"
            least = {"min_height": out.shape[0], "min_width": out.shape[1], "min_factor": shrink}
            decode_jpeg(cell, colorspace, buffer=out, **least)
    except ValueError as problem:
        raise ImageError(f"the jpeg is damaged ({problem})") from None


def _convert_inks(inks: NDArray[np.uint8], cell: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Convert CMYK to RGB without a color profile, as Pillow does."""
    if not has_inverted_inks(cell):
        np.invert(inks, out=inks)
    for first in range(0, len(inks), _ROWS_OF_INK):
        part = inks[first : first + _ROWS_OF_INK]
        light = part[..., :3] * part[..., 3:].astype(np.uint16) + 128
        out[first : first + _ROWS_OF_INK] = (light + (light >> 8)) >> 8


def _decode_png(cell: NDArray[np.uint8], out: NDArray[Any]) -> None:
    check_chunks(cell)
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
