"""Parts of images are what is wanted of the whole, and take no more memory than is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore import UnischemaField
from petastore.codecs import ImageDecode
from petastore.codecs.images.image_files import ImageError, checked_header, image_bytes
from petastore.codecs.images.image_hint import WHOLE
from petastore.codecs.images.image_parts import part_bytes, read_part, read_parts_into
from petastore.errors import DecodeError

COLOR = UnischemaField("image", "uint8", (None, None, 3))


def pixels(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.RandomState(seed).randint(0, 256, (height, width, 3)).astype(np.uint8)


def file_of(image: NDArray[Any], image_format: str = "png") -> NDArray[np.uint8]:
    return np.frombuffer(image_bytes(image, image_format, 90), np.uint8)


IMAGE = pixels(20, 30)
PNG = file_of(IMAGE)


@given(st.data())
def test_a_region_of_a_png_is_cut_out_of_it(data: st.DataObject) -> None:
    top, left = data.draw(st.integers(0, 19)), data.draw(st.integers(0, 29))
    height, width = data.draw(st.integers(1, 20 - top)), data.draw(st.integers(1, 30 - left))
    found = read_part(PNG, COLOR, ImageDecode(region=(top, left, height, width)))
    assert np.array_equal(found, IMAGE[top : top + height, left : left + width])
    assert found.flags.owndata or found.base is None


@given(st.sampled_from(["png", "jpeg"]), st.integers(16, 70), st.integers(16, 70), st.data())
def test_any_size_comes_out_as_wanted_and_takes_what_is_said(
    image_format: str, height: int, width: int, data: st.DataObject
) -> None:
    size = (data.draw(st.integers(1, 80)), data.draw(st.integers(1, 80)))
    wanted = ImageDecode(size=size, gray=data.draw(st.booleans()))
    cell = file_of(pixels(height, width), image_format)
    found = read_part(cell, COLOR, wanted)
    assert found.shape == wanted.shape_of((height, width, 3))
    assert found.flags.c_contiguous
    assert part_bytes(checked_header(cell, COLOR), COLOR, wanted) >= found.nbytes


@pytest.mark.parametrize(
    "wanted", [WHOLE, ImageDecode(size=(8, 10)), ImageDecode(region=(4, 8, 16, 8)), ImageDecode(gray=True)], ids=str
)
@pytest.mark.parametrize("image_format", ["png", "jpeg"])
@pytest.mark.parametrize("is_free", [False, True])
def test_many_are_what_each_is(wanted: ImageDecode, image_format: str, is_free: bool) -> None:
    sizes = [(20, 30), (32, 16), (24, 24)] if is_free or wanted.size or wanted.region else [(24, 24)] * 3
    cells = [file_of(pixels(*size, seed=number), image_format) for number, size in enumerate(sizes)]
    each = [read_part(cell, COLOR, wanted) for cell in cells]
    out: Any = np.empty(3, object) if is_free else np.zeros((3, *each[0].shape), np.uint8)
    read_parts_into(cells, COLOR, wanted, out)
    assert all(np.array_equal(one, other) for one, other in zip(out, each, strict=True))


def test_an_image_that_ends_before_the_region_is_refused_and_named() -> None:
    wanted = ImageDecode(region=(4, 4, 16, 26))
    assert read_part(PNG, COLOR, wanted).shape == (16, 26, 3)
    small = file_of(pixels(20, 29))
    with pytest.raises(ImageError, match=r"region|reaches beyond"):
        read_part(small, COLOR, wanted, np.empty((16, 26, 3), np.uint8))
    with pytest.raises(DecodeError) as caught:
        read_parts_into([PNG, small], COLOR, wanted, np.empty((2, 16, 26, 3), np.uint8))
    assert caught.value.row == 1
    with pytest.raises(ImageError, match="reaches beyond"):
        part_bytes(checked_header(small, COLOR), COLOR, wanted)


def test_of_a_jpeg_no_more_is_decoded_than_is_wanted() -> None:
    header = checked_header(file_of(pixels(64, 64), "jpeg"), COLOR)
    taken = [part_bytes(header, COLOR, ImageDecode(size=(side, side))) for side in (8, 16, 32, 64)]
    assert taken == [8 * 8 * 3, 16 * 16 * 3, 32 * 32 * 3, 64 * 64 * 3]
    as_png = checked_header(file_of(pixels(64, 64)), COLOR)
    assert part_bytes(as_png, COLOR, ImageDecode(size=(8, 8))) == 64 * 64 * 3
