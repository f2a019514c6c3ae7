"""Tests of image thumbnails as half-block characters in color, and of saved PNG files."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
from numpy.typing import NDArray
from rich.color import Color
from rich.console import Console
from rich.text import Text

from petastore import UnischemaField
from petastore.cli.head import thumbnail
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.decoding.display import holds_images, pixels_of, png_bytes

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)
Half = tuple[int, int, int] | None


def blocks(text: Text) -> list[list[tuple[str, Half, Half]]]:
    """Return the characters of each line, each with its foreground and background color."""
    lines: list[list[tuple[str, Half, Half]]] = [[]]
    for character, style, _ in Console(file=io.StringIO(), width=200).render(text):
        if character == "\n":
            lines.append([])
        else:
            assert style is not None
            lines[-1].append((character, half(style.color), half(style.bgcolor)))
    return lines[:-1]


def half(color: Color | None) -> Half:
    return None if color is None else color.get_truecolor()


def test_half_block_characters_show_two_pixels_each() -> None:
    image = np.array([[RED, GREEN], [BLUE, WHITE]], "uint8")
    assert blocks(thumbnail(image, 32)) == [[("▀", RED, BLUE), ("▀", GREEN, WHITE)]]


def test_half_block_characters_of_an_odd_height_end_with_an_empty_half() -> None:
    assert blocks(thumbnail(np.array([[0], [10], [20]], "uint8"), 32)) == [
        [("▀", (0, 0, 0), (10, 10, 10))],
        [("▀", (20, 20, 20), None)],
    ]


def test_thumbnail_averages_pixels() -> None:
    image = np.array([[0, 10, 20, 20], [0, 10, 20, 20], [40, 40, 90, 91], [40, 40, 90, 91]], "uint8")
    assert blocks(thumbnail(image, 2)) == [[("▀", (5,) * 3, (40,) * 3), ("▀", (20,) * 3, (90,) * 3)]]


@pytest.mark.parametrize("shape", [(33, 65), (65, 33, 3), (1, 1000), (1000, 1, 3), (32, 32), (31, 7, 4)])
def test_thumbnail_fits_and_keeps_uniform_images(shape: tuple[int, ...]) -> None:
    found = blocks(thumbnail(np.full(shape, 255, "uint8"), 32))
    assert len(found) <= 16
    assert 1 <= len(found[0]) <= 32
    shrink = max(1, *(size / 32 for size in shape[:2]))
    assert (len(found), len(found[0])) == (
        -(-max(1, round(shape[0] / shrink)) // 2),
        max(1, round(shape[1] / shrink)),
    )
    assert {color for line in found for _, *halves in line for color in halves} <= {WHITE, None}


def test_thumbnail_draws_transparent_pixels_on_black() -> None:
    image = np.array([[(255, 0, 100, 0), (255, 0, 100, 51)]], "uint8")
    assert blocks(thumbnail(image, 32)) == [[("▀", (0, 0, 0), None), ("▀", (51, 0, 20), None)]]


def test_thumbnail_scales_16_bit_pixels() -> None:
    assert blocks(thumbnail(np.array([[0, 500], [250, 1000]], "uint16"), 32)) == [
        [("▀", (0,) * 3, (64,) * 3), ("▀", (128,) * 3, (255,) * 3)]
    ]
    assert blocks(thumbnail(np.zeros((1, 1), "uint16"), 32)) == [[("▀", (0,) * 3, None)]]


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("uint8", (5, 4)), ("uint8", (5, 4, 3)), ("uint8", (5, 4, 4)), ("uint16", (5, 4)), ("uint16", (5, 4, 3))],
)
def test_saved_png_has_the_same_pixels(dtype: str, shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    assert_decodes_to(png_bytes(image), image)


def assert_decodes_to(content: bytes, image: NDArray[Any]) -> None:
    field = UnischemaField("image", image.dtype, image.shape, None)
    if image.dtype == np.uint16:  # Pillow has no 16-bit RGB mode
        decoded = CompressedImageCodec("png").decode(field, content)
    else:
        with PIL.Image.open(io.BytesIO(content)) as opened:
            assert opened.format == "PNG"
            decoded = np.asarray(opened)
    assert decoded.dtype == image.dtype
    np.testing.assert_array_equal(decoded, image)


def test_single_channel_arrays_are_gray_images() -> None:
    found = pixels_of(np.arange(6, dtype="uint8").reshape(2, 3, 1))
    assert found is not None
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    for shape in [(3,), (2, 2, 2), (0, 3), (4, 0, 3), (1, 2, 2, 3)]:
        assert pixels_of(np.zeros(shape, "uint8")) is None


@pytest.mark.parametrize(
    ("dtype", "shape", "codec", "is_image"),
    [
        ("uint8", (None, None, 3), CompressedImageCodec("jpeg"), True),
        ("uint16", (9, 9), CompressedImageCodec("png"), True),
        ("uint8", (None, None, None), CompressedImageCodec("png"), True),
        ("uint8", (28, 28), NdarrayCodec(), True),
        ("uint8", (None, None, 1), NdarrayCodec(), True),
        ("uint8", (64, 64, 4), NdarrayCodec(), True),
        ("uint8", (64, 64, 2), NdarrayCodec(), False),
        ("uint8", (784,), NdarrayCodec(), False),
        ("float32", (28, 28), NdarrayCodec(), False),
        ("uint16", (28, 28), NdarrayCodec(), False),
        ("str", (), None, False),
    ],
)
def test_image_columns_are_recognized_by_codec_or_shape(dtype: str, shape: Any, codec: Any, is_image: bool) -> None:
    assert holds_images(UnischemaField("x", dtype, shape, codec)) == is_image
