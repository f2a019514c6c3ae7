"""Files of images say what they are before they are decoded, and are refused there if that is not what is declared."""

from __future__ import annotations

import itertools
import math
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs.arrow.arrow_views import ByteCells
from petastore.codecs.images.image_files import (
    ImageError,
    checked_header,
    common_header,
    declared_header,
    decode_into,
    decode_jpegs,
    decoded_sizes,
    each_image,
    exif_orientation,
    image_bytes,
)
from petastore.errors import DecodeError

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
def test_a_file_says_what_is_in_it_and_gives_that(image_format: str, image: NDArray[Any]) -> None:
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
def test_pixels_are_the_same_where_the_library_gives_blue_first(
    image: NDArray[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(cv2, "IMREAD_COLOR_RGB", raising=False)  # as before 4.11
    cell, out = file_of(image), np.zeros_like(image)
    decode_into(cell, checked_header(cell, field_of(image)), out)
    assert np.array_equal(out, image)


@pytest.mark.parametrize(
    ("cell", "field", "said"),
    [
        (np.frombuffer(b"GIF89a..", np.uint8), COLOR, "neither PNG nor JPEG"),
        (np.empty(0, np.uint8), COLOR, "neither PNG nor JPEG"),
        (file_of(pixels(4, 4, 3))[:30], COLOR, "the png ends inside its header"),
        (file_of(pixels(4, 4, 3))[:-1], COLOR, "the png is cut off"),
        (file_of(pixels(4, 4, 3), "jpeg")[:100], COLOR, "it ends before its size is said"),
        (file_of(pixels(4, 4)), UnischemaField("image", "uint8", (4, 5, 3)), "the png is 4×4 of uint8, but the field"),
        (file_of(pixels(4, 4, 3)), GRAY, "the png is 4×4×3"),
        (file_of(pixels(4, 4, 3)), DEEP, "of uint8, but the field declares uint16"),
        (file_of(pixels(4, 5, 3), "jpeg"), UnischemaField("image", "uint8", (4, 4, 3)), "the jpeg is 4×5×3"),
        (np.frombuffer(cv2.imencode(".png", pixels(4, 4, 4))[1].tobytes(), np.uint8), COLOR, "alpha channel"),
    ],
    ids=["gif", "empty", "cut head", "cut", "cut jpeg", "gray", "color", "deep", "size", "alpha"],
)  # fmt: skip
def test_what_is_not_as_declared_is_refused_before_memory_is_taken(cell: Any, field: Any, said: str) -> None:
    with pytest.raises(ImageError, match=said):
        checked_header(cell, field)


def test_more_pixels_than_may_be_are_refused() -> None:
    cell = bytearray(file_of(pixels(4, 4)))
    cell[16:24] = (2**15).to_bytes(4, "big") * 2
    with pytest.raises(ImageError, match="32,768×32,768 pixels, more than 268,435,456"):
        checked_header(np.frombuffer(bytes(cell), np.uint8), GRAY)


def test_orientation_is_none_for_invalid_exif_data() -> None:
    plain = file_of(pixels(8, 8, 3), "jpeg").tobytes()
    for exif in (b"", b"MM", b"XX" + bytes(20), b"II*\0" + b"\xff" * 4, b"MM\0*\0\0\0\x08\0\x01" + bytes(3)):
        inside = b"Exif\0\0" + exif
        segment = b"\xff\xe1" + (len(inside) + 2).to_bytes(2, "big") + inside
        assert exif_orientation(np.frombuffer(plain[:2] + segment + plain[2:], np.uint8)) == 1
    assert exif_orientation(file_of(pixels(8, 8, 3))) == 1
    assert exif_orientation(np.empty(0, np.uint8)) == 1


def test_files_that_begin_alike_and_differ_in_size_are_not_mixed_up() -> None:
    sizes = [(8, 8, 3), (8, 9, 3), (8, 8, 3), (9, 8, 3), (8, 8)]
    cells = [file_of(pixels(*size), "jpeg") for size in sizes]
    field = {3: COLOR, 2: GRAY}
    assert [checked_header(cell, field[len(size)]).shape for cell, size in zip(cells, sizes, strict=True)] == sizes


def test_a_header_is_common_where_all_files_have_it() -> None:
    one, same, other = file_of(pixels(4, 4, 3)), file_of(pixels(4, 4, 3) // 2), file_of(pixels(4, 5, 3))
    assert common_header([one, same], COLOR) == ("png", (4, 4, 3), np.dtype(np.uint8))
    assert common_header([one, other], COLOR) is None
    assert common_header([one, one[:-1]], COLOR) is None
    assert common_header([], COLOR) is None


def test_the_first_file_that_cannot_be_read_is_named() -> None:
    cells = [file_of(pixels(4, 4, 3))] * 2 + [np.zeros(9, np.uint8)] * 2
    read: list[int] = []

    def take(row: int, cell: NDArray[np.uint8]) -> None:
        checked_header(cell, COLOR)
        read.append(row)

    with pytest.raises(DecodeError, match="the cell is no image as declared") as caught:
        each_image(take, cells, "image")
    assert (read, caught.value.row, caught.value.column) == ([0, 1], 2, "image")


@pytest.mark.parametrize("shrink", [1, 2, 4, 8])
def test_jpegs_together_are_what_each_is_by_itself(shrink: int) -> None:
    cells = [file_of(pixels(32, 48, 3) // (number + 1), "jpeg") for number in range(3)]
    shape = (-(-32 // shrink), -(-48 // shrink), 3)
    together, each = np.zeros((3, *shape), np.uint8), np.zeros((3, *shape), np.uint8)
    assert decode_jpegs(cells, together, shrink=shrink)
    for cell, place in zip(cells, each, strict=True):
        decode_into(cell, checked_header(cell, COLOR), place, shrink=shrink)
    assert np.array_equal(together, each)
    assert each.any()


@given(st.integers(20, 200))
def test_a_jpeg_that_is_cut_is_refused_in_either_way_or_in_none(stop: int) -> None:
    cell = file_of(pixels(8, 8, 3), "jpeg")
    header, out = checked_header(cell, COLOR), np.zeros((1, 8, 8, 3), np.uint8)
    is_read = decode_jpegs([cell[:stop]], out)
    try:
        decode_into(cell[:stop], header, out[0])
    except ImageError:
        assert not is_read
    else:
        assert is_read


def cells_of(*files: NDArray[np.uint8]) -> ByteCells:
    sizes = np.array([len(file) for file in files], np.int64)
    return ByteCells(np.concatenate(files), np.cumsum(sizes) - sizes, sizes)


def test_what_decoding_takes_is_known_by_the_headers_and_nothing_where_it_is_refused() -> None:
    files = [
        file_of(pixels(4, 4, 3)),
        file_of(pixels(8, 8, 3), "jpeg"),
        np.zeros(9, np.uint8),
        file_of(pixels(4, 4), "jpeg"),
    ]
    found = decoded_sizes(cells_of(*files), lambda header: math.prod(declared_header(header, COLOR).shape))
    assert found.tolist() == [48, 192, 0, 48]  # gray becomes RGB


def test_decoded_sizes_of_an_animated_png_count_two_frames() -> None:
    still = cv2.imencode(".png", np.zeros((1100, 1000, 3), np.uint8))[1].tobytes()
    control = b"\0\0\0\x08acTL" + bytes(8) + b"\0\0\0\0"
    animated = still[:33] + control + still[33:]  # behind the header chunk
    cells = cells_of(np.frombuffer(still, np.uint8), np.frombuffer(animated, np.uint8))
    assert decoded_sizes(cells, lambda _: 7).tolist() == [7, 14]


def test_a_large_jpeg_of_several_scans_takes_all_of_its_frequencies() -> None:
    image = pixels(1100, 1000, 3)
    plain = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50])[1]
    scans = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 50, cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1]
    at_once, several = decoded_sizes(cells_of(plain.ravel(), scans.ravel()), lambda _: 1).tolist()
    assert at_once == 1
    assert several >= 1100 * 1000 * 2  # two bytes for each frequency of brightness alone
