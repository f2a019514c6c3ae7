"""Tests of `ImageDecode`: size, region and mode, the resulting shape, and decoded sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore.codecs import CompressedImageCodec, ImageDecode
from petastore.codecs.images.image import hinted_field
from petastore.codecs.images.image_header import image_bytes
from petastore.codecs.registry import codec_of
from petastore.errors import InvalidArgumentError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import empty_column


@pytest.mark.parametrize(
    ("hint", "stored", "comes_out"),
    [
        (ImageDecode(), (480, None, 3), (480, None, 3)),
        (ImageDecode(size=(8, 9)), (None, None), (8, 9)),
        (ImageDecode(region=(2, 0, 30, 40)), (None, None, 3), (30, 40, 3)),
        (ImageDecode(region=(2, 0, 30, 40)), (32, 40, 3), (30, 40, 3)),
        (ImageDecode(region=(2, 0, 30, 40), size=(8, 9), mode="gray"), (None, 64, 3), (8, 9)),
        (ImageDecode(mode="gray"), (480, 640), (480, 640)),
    ],
    ids=str,
)
def test_image_decode_shape_is_known_in_advance(hint: ImageDecode, stored: Any, comes_out: Any) -> None:
    assert hint.shape_of(stored) == comes_out


@pytest.mark.parametrize("stored", [(31, 40, 3), (32, 39, 3), (32, None, 3)])
def test_image_decode_region_beyond_the_shape_raises(stored: Any) -> None:
    hint = ImageDecode(region=(2, 0, 30, 40))
    if stored == (32, None, 3):
        assert hint.shape_of(stored) == (30, 40, 3)
        return
    with pytest.raises(InvalidArgumentError, match=r"must lie inside images of shape .*, got \(2, 0, 30, 40\)"):
        hint.shape_of(stored)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 128},
        {"size": (128,)},
        {"size": (0, 5)},
        {"size": (5.0, 5)},
        {"size": (True, 5)},
        {"size": (2**20, 2**20)},
        {"region": (0, 0, 5)},
        {"region": (-1, 0, 5, 5)},
        {"region": (0, 0, 0, 5)},
        {"region": "abcd"},
        {"mode": "color"},
        {"exif_orientation": "yes"},
    ],
)
def test_image_decode_invalid_options_raise(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{next(iter(wrong))} must be "):
        ImageDecode(**wrong)


def test_image_decode_options_are_normalized() -> None:
    assert ImageDecode([8, np.int64(9)]) == ImageDecode((8, 9))  # type: ignore[arg-type]
    assert len({ImageDecode((8, 9)), ImageDecode((8, 9)), ImageDecode((9, 8))}) == 2


COLOR = UnischemaField("image", "uint8", (None, None, 3), CompressedImageCodec("png"))


def pixels(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)


def decoded(files: list[bytes], hint: ImageDecode) -> list[NDArray[Any]]:
    """Decode images as one column, check that each equals its single decode, and return them."""
    field = hinted_field(COLOR, hint)
    codec = codec_of(field)
    column = codec.encode_column(files, COLOR)
    out: Any = empty_column(field, len(files))
    codec.decode_column(column, field, out)
    for file, image in zip(files, out, strict=True):
        np.testing.assert_array_equal(codec.decode(field, file), image)
    return list(out)


@given(st.data())
def test_image_decode_region_equals_the_slice(data: st.DataObject) -> None:
    top, left = data.draw(st.integers(0, 19)), data.draw(st.integers(0, 29))
    height, width = data.draw(st.integers(1, 20 - top)), data.draw(st.integers(1, 30 - left))
    image = pixels(20, 30)
    (part,) = decoded([image_bytes(image, "png", 0)], ImageDecode(region=(top, left, height, width)))
    np.testing.assert_array_equal(part, image[top : top + height, left : left + width])


@given(st.sampled_from(["png", "jpeg"]), st.integers(16, 70), st.integers(16, 70), st.data())
def test_image_decode_takes_no_more_memory_than_the_reported_size(
    image_format: str, height: int, width: int, data: st.DataObject
) -> None:
    hint = ImageDecode(
        (data.draw(st.integers(1, 80)), data.draw(st.integers(1, 80))), mode=data.draw(st.sampled_from(["gray", None]))
    )
    file = image_bytes(pixels(height, width), image_format, 90)
    (image,) = decoded([file], hint)
    assert image.shape == hint.shape_of((height, width, 3))
    assert image.flags.c_contiguous
    assert sizes_of([file], hint)[0] >= image.nbytes


def sizes_of(files: list[bytes], hint: ImageDecode) -> list[int]:
    field = hinted_field(COLOR, hint)
    codec: Any = codec_of(field)
    sizes: list[int] = codec.decoded_sizes(pa.array(files), field).tolist()
    return sizes


@pytest.mark.parametrize(
    "hint",
    [ImageDecode(), ImageDecode(size=(8, 10)), ImageDecode(region=(4, 8, 16, 8)), ImageDecode(mode="gray")],
    ids=str,
)
@pytest.mark.parametrize("image_format", ["png", "jpeg"])
def test_image_decode_of_a_column_equals_single_images(hint: ImageDecode, image_format: str) -> None:
    sizes = [(20, 30), (32, 16), (24, 24)]
    assert len(decoded([image_bytes(pixels(*size), image_format, 90) for size in sizes], hint)) == 3


def test_decoded_size_of_a_jpeg_shrinks_with_the_requested_size() -> None:
    file = image_bytes(pixels(64, 64), "jpeg", 90)
    assert [sizes_of([file], ImageDecode((side, side)))[0] for side in (8, 16, 32, 64)] == [192, 768, 3072, 12288]
    assert sizes_of([image_bytes(pixels(64, 64), "png", 90)], ImageDecode((8, 8))) == [12288]
    assert sizes_of([file], ImageDecode(region=(4, 4, 16, 61))) == [0]  # the region ends outside the image
