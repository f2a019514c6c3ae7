"""Tests of image headers: format, shape and limits are checked before pixels are decoded."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.codecs.images.image_header import (
    ImageError,
    checked_header,
    declared_header,
    decode_into,
    decoded_sizes,
    exif_orientation,
    image_bytes,
)

COLOR = UnischemaField("image", "uint8", (None, None, 3))
GRAY = UnischemaField("image", "uint8", (None, None))
DEEP = UnischemaField("image", "uint16", (None, None, 3))


def pixels(*shape: int, dtype: str = "uint8") -> NDArray[Any]:
    return (np.arange(np.prod(shape)).reshape(shape) * 7 % 251).astype(dtype)


def file_of(image: NDArray[Any], image_format: str = "png") -> NDArray[np.uint8]:
    return np.frombuffer(image_bytes(image, image_format, 90), np.uint8)


def field_of(image: NDArray[Any]) -> UnischemaField:
    return UnischemaField("image", image.dtype, (None,) * image.ndim)


IMAGES = [
    *itertools.product(["png", "jpeg"], [pixels(5, 7), pixels(16, 33, 3), pixels(1, 1, 3)]),
    ("png", pixels(4, 6, dtype="uint16")),
    ("png", pixels(4, 6, 3, dtype="uint16")),
]


@pytest.mark.parametrize(("image_format", "image"), IMAGES)
def test_image_header_has_format_shape_and_dtype_of_the_decoded_image(image_format: str, image: NDArray[Any]) -> None:
    cell = file_of(image, image_format)
    header = checked_header(cell, field_of(image))
    assert tuple(header) == (image_format, image.shape, image.dtype)
    out = np.zeros_like(image)
    decode_into(cell, header, out)
    if image_format == "png":
        assert np.array_equal(out, image)
    else:
        theirs: Any = cv2.imdecode(cell, cv2.IMREAD_UNCHANGED)
        assert np.abs(out.astype(int) - (theirs if out.ndim == 2 else theirs[..., ::-1])).max() <= 3


@pytest.mark.parametrize("image", [image for image_format, image in IMAGES if image_format == "png"])
def test_image_pixels_are_rgb_with_old_opencv_releases(image: NDArray[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cv2, "IMREAD_COLOR_RGB", raising=False)  # OpenCV before 4.11 does not have it
    cell, out = file_of(image), np.zeros_like(image)
    decode_into(cell, checked_header(cell, field_of(image)), out)
    assert np.array_equal(out, image)


@pytest.mark.parametrize(
    ("cell", "field", "said"),
    [
        (np.frombuffer(b"GIF89a..", np.uint8), COLOR, "an image must be PNG or JPEG, got a file that begins with"),
        (np.empty(0, np.uint8), COLOR, "an image must be PNG or JPEG, got a file that begins with"),
        (file_of(pixels(4, 4, 3))[:30], COLOR, "the png is truncated inside its header"),
        (file_of(pixels(4, 4, 3))[:-1], COLOR, "the png is truncated"),
        (file_of(pixels(4, 4, 3), "jpeg")[:100], COLOR, "the jpeg is truncated inside its header"),
        (file_of(pixels(4, 4)), UnischemaField("image", "uint8", (4, 5, 3)), "the png is 4×4 of uint8, but the field"),
        (file_of(pixels(4, 4, 3)), GRAY, "the png is 4×4×3"),
        (file_of(pixels(4, 4, 3)), DEEP, "of uint8, but the field declares uint16"),
        (file_of(pixels(4, 5, 3), "jpeg"), UnischemaField("image", "uint8", (4, 4, 3)), "the jpeg is 4×5×3"),
        (np.frombuffer(cv2.imencode(".png", pixels(4, 4, 4))[1].tobytes(), np.uint8), COLOR, "alpha channel"),
    ],
    ids=["gif", "empty", "cut head", "cut", "cut jpeg", "gray", "color", "deep", "size", "alpha"],
)  # fmt: skip
def test_image_header_mismatch_raises_before_allocation(cell: Any, field: Any, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        checked_header(cell, field)


def test_image_header_with_too_many_pixels_raises() -> None:
    cell = bytearray(file_of(pixels(4, 4)))
    cell[16:24] = (2**15).to_bytes(4, "big") * 2
    with pytest.raises(ImageError, match="an image must have at most 268,435,456 pixels, got 32,768×32,768"):
        checked_header(np.frombuffer(bytes(cell), np.uint8), GRAY)


def test_exif_orientation_is_1_for_invalid_exif_data() -> None:
    plain = file_of(pixels(8, 8, 3), "jpeg").tobytes()
    for exif in (b"", b"MM", b"XX" + bytes(20), b"II*\0" + b"\xff" * 4, b"MM\0*\0\0\0\x08\0\x01" + bytes(3)):
        inside = b"Exif\0\0" + exif
        segment = b"\xff\xe1" + (len(inside) + 2).to_bytes(2, "big") + inside
        assert exif_orientation(np.frombuffer(plain[:2] + segment + plain[2:], np.uint8)) == 1
    assert exif_orientation(file_of(pixels(8, 8, 3))) == 1
    assert exif_orientation(np.empty(0, np.uint8)) == 1


def test_jpeg_headers_with_equal_beginnings_are_distinguished() -> None:
    sizes = [(8, 8, 3), (8, 9, 3), (8, 8, 3), (9, 8, 3), (8, 8)]
    cells = [file_of(pixels(*size), "jpeg") for size in sizes]
    field = {3: COLOR, 2: GRAY}
    assert [checked_header(cell, field[len(size)]).shape for cell, size in zip(cells, sizes, strict=True)] == sizes


def cells_of(*files: NDArray[np.uint8]) -> ByteCells:
    sizes = np.array([len(file) for file in files], np.int64)
    return ByteCells(np.concatenate(files), np.cumsum(sizes) - sizes, sizes)


def test_decoded_sizes_come_from_the_image_header_and_are_zero_without_one() -> None:
    files = [
        file_of(pixels(4, 4, 3)),
        file_of(pixels(8, 8, 3), "jpeg"),
        np.zeros(9, np.uint8),
        file_of(pixels(4, 4), "jpeg"),
    ]
    found = decoded_sizes(cells_of(*files), lambda header: math.prod(declared_header(header, COLOR).shape))
    assert found.tolist() == [48, 192, 0, 48]  # gray is decoded to RGB


def test_decoded_size_of_an_animated_png_counts_two_frames() -> None:
    still = cv2.imencode(".png", np.zeros((1100, 1000, 3), np.uint8))[1].tobytes()
    control = b"\0\0\0\x08acTL" + bytes(8) + b"\0\0\0\0"
    animated = still[:33] + control + still[33:]  # after the IHDR chunk
    cells = cells_of(np.frombuffer(still, np.uint8), np.frombuffer(animated, np.uint8))
    assert decoded_sizes(cells, lambda _: 7).tolist() == [7, 14]


def test_decoded_size_of_a_progressive_jpeg_counts_its_coefficients() -> None:
    image = pixels(1100, 1000, 3)
    plain = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1]
    scans = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50, cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1]
    at_once, several = decoded_sizes(cells_of(plain.ravel(), scans.ravel()), lambda _: 1).tolist()
    assert at_once == 1
    assert several >= 1100 * 1000 * 2  # at least two bytes for each luminance coefficient
