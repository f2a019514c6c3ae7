"""Tests of image fields with `ImageDecode`: resized, cropped and gray pixels, errors, EXIF orientation and memory."""

from __future__ import annotations

import io
import pickle
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image, ImageOps

from petastore.codecs import CompressedImageCodec, ImageDecode, NdarrayCodec
from petastore.codecs.images.image import HintedImageCodec, hinted_field
from petastore.codecs.registry import codec_of
from petastore.errors import DecodeError, InvalidArgumentError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import assert_declared, assert_refused_or_declared, empty_column
from tests import bombs
from tests.memory import grown_in_child
from tests.tier import IS_FULL, examples

PNG, JPEG = CompressedImageCodec("png"), CompressedImageCodec("jpeg", 90)


def field_of(shape: tuple[int | None, ...], codec: CompressedImageCodec = JPEG, dtype: str = "uint8") -> UnischemaField:
    return UnischemaField("image", dtype, shape, codec)


def read(field: UnischemaField, hint: ImageDecode, cell: bytes) -> NDArray[Any]:
    hinted = hinted_field(field, hint)
    image: NDArray[Any] = codec_of(hinted).decode(hinted, cell)
    assert_declared(hinted, image)
    return image


def waves(height: int, width: int) -> NDArray[np.uint8]:
    """Return an image of smooth colors with three different channels."""
    rows, columns = np.mgrid[:height, :width]
    planes = [np.sin(rows / 9), np.cos(columns / 7), np.sin((rows + columns) / 11)]
    return np.asarray(127 + 120 * np.stack(planes, axis=-1), np.uint8)


@pytest.fixture(scope="module")
def photographs() -> list[NDArray[np.uint8]]:
    from sklearn.datasets import load_sample_images

    whole = [np.asarray(image) for image in load_sample_images().images]
    return [*whole, *(image[y : y + 256, x : x + 256] for image in whole for y in (0, 171) for x in (0, 384))]


def exact_then_resized(image: NDArray[Any], hint: ImageDecode) -> NDArray[Any]:
    """Decode, crop, resize and convert with OpenCV, as the reference implementation."""
    top, left, height, width = hint.region or (0, 0, *image.shape[:2])
    part = np.ascontiguousarray(image[top : top + height, left : left + width])
    if hint.size is not None:
        shrinks = max(old / new for old, new in zip(part.shape[:2], hint.size, strict=True)) > 1.5
        part = cv2.resize(part, hint.size[::-1], interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    return cv2.cvtColor(part, cv2.COLOR_RGB2GRAY) if hint.mode == "gray" and part.ndim == 3 else part


HINTS = [
    ImageDecode(size=(128, 128)),
    ImageDecode(size=(100, 120)),
    ImageDecode(size=(64, 64)),
    ImageDecode(size=(32, 32)),
    ImageDecode(size=(20, 24)),
    ImageDecode(size=(96, 96), region=(16, 32, 224, 208)),
    ImageDecode(size=(60, 60), mode="gray"),
]


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_reduced_size_jpeg_decode_differs_by_at_most_6_levels_on_average(
    photographs: list[NDArray[np.uint8]], hint: ImageDecode
) -> None:
    field = field_of((None, None, 3))
    for photograph in photographs:
        cell = JPEG.encode(field, photograph)
        found, wanted = read(field, hint, cell), exact_then_resized(JPEG.decode(field, cell), hint)
        assert found.shape == wanted.shape
        assert float(np.abs(found.astype(int) - wanted.astype(int)).mean()) <= 6
        assert abs(float(found.mean()) - float(wanted.mean())) <= 1.5


@pytest.mark.parametrize(
    "hint",
    [
        ImageDecode(),
        ImageDecode(region=(3, 5, 200, 211)),
        ImageDecode(size=(200, 240)),
        ImageDecode(size=(400, 300)),
        ImageDecode(size=(100, 100), region=(1, 0, 254, 256)),
    ],
    ids=str,
)
def test_jpeg_decoded_without_size_reduction_equals_decoding_then_resizing(
    photographs: list[NDArray[np.uint8]], hint: ImageDecode
) -> None:
    field = field_of((256, 256, 3))
    for photograph in photographs[2:]:
        cell = JPEG.encode(field, photograph)
        np.testing.assert_array_equal(read(field, hint, cell), exact_then_resized(JPEG.decode(field, cell), hint))


def test_jpeg_decoded_to_gray_is_the_luminance(photographs: list[NDArray[np.uint8]]) -> None:
    field = field_of((None, None, 3))
    for photograph in photographs:
        cell = JPEG.encode(field, photograph)
        brightness = cv2.cvtColor(JPEG.decode(field, cell), cv2.COLOR_RGB2GRAY)
        found = read(field, ImageDecode(mode="gray"), cell)
        # Here, RGB was clipped before it was converted to gray; the luminance in the file was not.
        assert float(np.abs(found.astype(int) - brightness.astype(int)).mean()) < 0.2


hints = st.builds(
    ImageDecode,
    size=st.none() | st.tuples(st.integers(1, 48), st.integers(1, 48)),
    region=st.none() | st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 10), st.integers(1, 14)),
    mode=st.sampled_from(["gray", None]),
)


@settings(deadline=None, max_examples=examples(60))
@given(hint=hints, color=st.booleans(), deep=st.booleans())
def test_png_with_image_decode_is_exact(hint: ImageDecode, color: bool, deep: bool) -> None:
    image: NDArray[Any] = waves(20, 24) if color else waves(20, 24)[..., 0].copy()
    image = image.astype("uint16") * 250 if deep else image
    field = field_of(image.shape, PNG, image.dtype.name)
    np.testing.assert_array_equal(read(field, hint, PNG.encode(field, image)), exact_then_resized(image, hint))


@settings(deadline=None, max_examples=examples(60))
@given(
    hint=hints,
    sizes=st.lists(st.tuples(st.integers(20, 70), st.integers(24, 70)), min_size=1, max_size=4),
    codec=st.sampled_from([PNG, JPEG]),
    color=st.booleans(),
)
def test_decode_column_and_decode_bytes_equal_decode(
    hint: ImageDecode, sizes: list[tuple[int, int]], codec: CompressedImageCodec, color: bool
) -> None:
    stored = field_of((None, None, 3) if color else (None, None), codec)
    images = [waves(*size) if color else waves(*size)[..., 0].copy() for size in sizes]
    column = codec.encode_column(images, stored)
    field = hinted_field(stored, hint)
    hinted = codec_of(field)
    assert isinstance(hinted, HintedImageCodec)
    one, other = empty_column(field, len(column)), empty_column(field, len(column))
    hinted.decode_column(column, field, one)
    hinted.decode_bytes([np.frombuffer(cell, np.uint8) for cell in column.to_pylist()], field, other)
    for cell, in_column, apart in zip(column.to_pylist(), one, other, strict=True):
        value = hinted.decode(field, cell)
        assert_declared(field, value)
        np.testing.assert_array_equal(in_column, value)
        np.testing.assert_array_equal(apart, value)


def test_small_images_resize_to_every_smaller_size() -> None:
    field, wrong = field_of((None, None, 3)), []
    # JPEG blocks are 8 × 8 pixels, or 16 × 16 with subsampled colors, and decode at sizes of n/8.
    for side in range(1, 40) if IS_FULL else (1, 2, 7, 8, 9, 16, 17, 33):
        cell = JPEG.encode(field, np.full((side, 17, 3), (200, 100, 50), np.uint8))
        for small in range(1, side + 1):
            found = read(field, ImageDecode(size=(small, 9)), cell)
            if np.abs(found.astype(int) - (200, 100, 50)).max() > 4:
                wrong.append((side, small))
    assert wrong == []


def test_images_of_variable_size_resize_to_one_shape() -> None:
    assert ImageDecode(size=(8, 9)).shape_of((None, None, 3)) == (8, 9, 3)
    assert ImageDecode(size=(8, 9)).shape_of((None, None, None)) == (8, 9, 3)
    assert ImageDecode(region=(1, 2, 5, 6)).shape_of((None, 50, 3)) == (5, 6, 3)
    assert ImageDecode(size=(8, 9), mode="gray").shape_of((None, None, 3)) == (8, 9)
    assert ImageDecode(size=(8, 9), region=(1, 2, 5, 6)).shape_of((None, None)) == (8, 9)
    assert ImageDecode(mode="gray").shape_of((None, 7, 3)) == (None, 7)
    assert ImageDecode().shape_of((None, 7, 3)) == (None, 7, 3)


def test_error_names_the_first_image_smaller_than_the_region() -> None:
    stored = field_of((None, None, 3))
    field = hinted_field(stored, ImageDecode(region=(0, 0, 20, 20)))
    for first, row in ((waves(20, 20), 1), (waves(30, 19), 0)):
        column = JPEG.encode_column([first, waves(30, 19)], stored)
        with pytest.raises(
            DecodeError, match=r"the jpeg must contain the region \(0, 0, 20, 20\) .*, got 30×19 pixels"
        ) as caught:
            codec_of(field).decode_column(column, field, np.empty((2, 20, 20, 3), np.uint8))
        assert (caught.value.column, caught.value.row) == ("image", row)


def test_error_names_the_first_damaged_image() -> None:
    stored = field_of((32, 32, 3))
    field = hinted_field(stored, ImageDecode(size=(16, 16)))
    good, *cut = (JPEG.encode(stored, waves(32, 32)) for _ in range(3))
    column = pa.array([good, *(cell[:-40] for cell in cut)])
    with pytest.raises(DecodeError, match="the jpeg is damaged") as caught:
        codec_of(field).decode_column(column, field, np.empty((3, 16, 16, 3), np.uint8))
    assert (caught.value.column, caught.value.row) == ("image", 1)


def test_image_that_does_not_match_the_stored_shape_raises() -> None:
    cell = JPEG.encode(field_of((32, 32, 3)), waves(32, 32))
    for shape in ((32, 40, 3), (None, 40, 3), (32, 32)):
        with pytest.raises(DecodeError, match="the jpeg is 32×32×3 of uint8, but the field declares"):
            read(field_of(shape), ImageDecode(size=(16, 16)), cell)


@pytest.mark.parametrize("codec", [PNG, JPEG])
@settings(deadline=None, max_examples=examples(60))
@given(data=st.data())
def test_damaged_image_raises_or_decodes(codec: CompressedImageCodec, data: st.DataObject) -> None:
    stored = field_of((32, 48, 3), codec)
    hint = data.draw(st.sampled_from([ImageDecode(size=(16, 24)), ImageDecode(size=(9, 9), mode="gray")]))
    cell = bytearray(codec.encode(stored, waves(32, 48)))
    for _ in range(data.draw(st.integers(1, 4))):
        cell[data.draw(st.integers(0, len(cell) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(cell)))
    assert_refused_or_declared(hinted_field(stored, hint), bytes(cell[:end]))


def test_image_decode_raises_for_fields_that_are_not_images() -> None:
    array = UnischemaField("array", "uint8", (4, 4), NdarrayCodec())
    with pytest.raises(
        InvalidArgumentError,
        match=r"decode must name fields with CompressedImageCodec, got 'array', whose codec is NdarrayCodec\(\)",
    ):
        hinted_field(array, ImageDecode(mode="gray"))
    with pytest.raises(
        InvalidArgumentError, match="decode must name fields with CompressedImageCodec, got 'id', whose codec is None"
    ):
        hinted_field(UnischemaField("id", "int64"), ImageDecode(mode="gray"))
    with pytest.raises(
        InvalidArgumentError,
        match=r"decode= of 'image': region must lie inside images of shape \(32, None, 3\), got \(0, 0, 33, 8\) as",
    ):
        hinted_field(field_of((32, None, 3)), ImageDecode(region=(0, 0, 33, 8)))
    with pytest.raises(
        InvalidArgumentError,
        match=r"decode must have petastore\.codecs\.ImageDecode\(size=…\) for 'image', got \(8, 8\)",
    ):
        hinted_field(field_of((32, None, 3)), (8, 8))  # type: ignore[arg-type]


def test_codec_with_image_decode_raises_for_a_field_of_another_shape() -> None:
    field = hinted_field(field_of((None, None, 3)), ImageDecode(size=(8, 9)))
    assert pickle.loads(pickle.dumps(field)) == field  # noqa: S301 - our own bytes
    assert hash(field) == hash(hinted_field(field_of((None, None, 3)), ImageDecode(size=(8, 9))))
    assert field != field_of((8, 9, 3))
    with pytest.raises(SchemaError, match=r"must be uint8 of shape \(8, 9, 3\), .*, got uint8 of shape \(8, 8, 3\)"):
        UnischemaField("image", "uint8", (8, 8, 3), field.codec)
    with pytest.raises(SchemaError, match="uint16"):
        UnischemaField("image", "uint16", (8, 9, 3), field.codec)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_rotates_like_pillow(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    written = io.BytesIO()
    Image.fromarray(waves(48, 32)).save(written, "JPEG", quality=95, exif=exif)
    cell = written.getvalue()
    upright = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(cell))))
    field, turned = field_of((None, None, 3)), ImageDecode(exif_orientation=True)
    assert np.array_equal(read(field, turned, cell), upright)
    assert read(field, ImageDecode(), cell).shape == (48, 32, 3)
    top = ImageDecode(region=(4, 2, 9, 5), exif_orientation=True)
    assert np.array_equal(read(field, top, cell), upright[4:13, 2:7])
    square = ImageDecode(size=(16, 16), mode="gray", exif_orientation=True)
    expected = read(field_of((16, 16, 3)), ImageDecode(mode="gray"), PNG.encode(field, cv2.resize(
        upright, (16, 16), interpolation=cv2.INTER_AREA)))  # fmt: skip
    assert np.abs(read(field, square, cell).astype(int) - expected).max() <= 3


def test_exif_orientation_without_size_makes_a_fixed_shape_variable() -> None:
    field = field_of((48, 32, 3))
    assert hinted_field(field, ImageDecode(exif_orientation=True)).shape == (None, None, 3)
    assert hinted_field(field, ImageDecode(exif_orientation=True, size=(8, 8))).shape == (8, 8, 3)
    assert hinted_field(field_of((32, 32, 3)), ImageDecode(exif_orientation=True)).shape == (32, 32, 3)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_mode_rgb_returns_three_channels_for_any_file(mode: str) -> None:
    written = io.BytesIO()
    Image.fromarray(waves(48, 32)).convert(mode).save(written, "JPEG")
    expected = np.asarray(Image.open(io.BytesIO(written.getvalue())).convert("RGB"))
    for shape in ((48, 32, 3), (None, None, 3), (48, 32), (None, None)):
        assert np.array_equal(read(field_of(shape), ImageDecode(mode="rgb"), written.getvalue()), expected)


def test_second_image_decode_replaces_the_first() -> None:
    stored = field_of((None, None, 3))
    once = hinted_field(stored, ImageDecode(size=(8, 9)))
    assert hinted_field(once, ImageDecode(mode="gray")) == hinted_field(stored, ImageDecode(mode="gray"))


def test_field_with_a_decode_hint_is_written_with_the_decoded_shape() -> None:
    field = hinted_field(field_of((None, None, 3), PNG), ImageDecode(size=(8, 9)))
    codec = codec_of(field)
    assert codec.storage_type(field) == pa.binary()
    image = waves(8, 9)
    assert (codec.codec_id, dict(codec.config())) == ("compressed_image", dict(PNG.config()))
    written = field_of((8, 9, 3), PNG)
    np.testing.assert_array_equal(PNG.decode(written, codec.encode(field, image)), image)
    assert codec.encode_column([image, None], field).equals(PNG.encode_column([image, None], written))


@pytest.mark.parametrize("scans", ["one", "each", "progressive"])
@pytest.mark.parametrize(
    "hint", [ImageDecode(size=(64, 64)), ImageDecode(region=(8, 8, 16, 16)), ImageDecode(mode="gray"), ImageDecode()]
)
def test_decoding_a_region_takes_no_more_memory_than_the_reported_size(hint: ImageDecode, scans: str) -> None:
    field = hinted_field(UnischemaField("i", "uint8", (None, None, 3), CompressedImageCodec("jpeg")), hint)
    codec, cell = field.codec, bombs.jpeg(4096, 4000, scans=scans)
    assert isinstance(codec, HintedImageCodec)
    codec.decode(field, bombs.jpeg(24, 24))  # the first call loads libraries, whose memory must not count
    (said,) = codec.decoded_sizes(pa.array([cell]), field).tolist()  # type: ignore[union-attr]
    _, grown = grown_in_child(lambda growth: [codec.decode(field, cell).nbytes, growth()])
    assert grown <= 2 * said + 24 * 2**20
    if scans != "one":
        assert said == 6 * 4096 * 4000  # a progressive JPEG needs all its coefficients in memory
