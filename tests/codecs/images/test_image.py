"""Tests of `CompressedImageCodec`: codec laws, RGB channel order, pixels equal to OpenCV and Pillow, and damage."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from petastore.codecs import CompressedImageCodec
from petastore.errors import DecodeError, EncodeError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case, empty_column
from tests import bombs
from tests.codecs import bombs_of
from tests.codecs.measured_laws import MeasuredCodecLaws
from tests.memory import grown_in_child

PNG, JPEG = CompressedImageCodec("png"), CompressedImageCodec("jpeg", 90)


def field_of(dtype: str, shape: tuple[int | None, ...], codec: CompressedImageCodec = PNG) -> UnischemaField:
    return UnischemaField("image", dtype, shape, codec)


def noise(shape: tuple[int, ...], dtype: str = "uint8") -> np.ndarray[Any, Any]:
    return np.random.default_rng(7).integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def smooth(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return an image of gradients, which JPEG compresses well."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    planes = [rows * 7 % 256, columns * 5 % 256, (rows + columns) * 3 % 256]
    image = np.stack(planes, axis=-1).astype("uint8")
    return image if len(shape) == 3 else image[..., 0]


@pytest.fixture(scope="module")
def photographs() -> list[np.ndarray[Any, Any]]:
    from sklearn.datasets import load_sample_images

    return [np.asarray(image) for image in load_sample_images().images]


def images(shape: tuple[int | None, ...], dtype: str) -> st.SearchStrategy[Any]:
    sizes = st.tuples(*(st.integers(1, 6) if size is None else st.just(size) for size in shape))
    return sizes.flatmap(lambda drawn: hnp.arrays(dtype, drawn))


def smooth_images(shape: tuple[int | None, ...]) -> st.SearchStrategy[Any]:
    return st.tuples(*(st.integers(8, 24) if size is None else st.just(size) for size in shape)).map(smooth)


class TestPngLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        rgba, one = np.zeros((4, 5, 4), "uint8"), np.zeros((4, 5, 1), "uint8")
        return {
            f"{dtype}_{kind}": Case(
                field_of(dtype, shape), images(shape, dtype), [rgba, one, np.zeros((4, 5, 3), "float32"), "image"]
            )
            for dtype in ("uint8", "uint16")
            for kind, shape in {
                "rgb": (4, 5, 3),
                "gray": (5, 3),
                "free_rgb": (None, None, 3),
                "free_gray": (None, 4),
            }.items()
        } | {"any": Case(field_of("uint8", (None, None, None)), images((None, None, 3), "uint8"), [rgba, one])}

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.pngs(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parents[1] / "golden" / "compressed_image_png"

    def golden_values(self, name: str) -> Sequence[Any]:
        shape = tuple(size or 6 for size in self.cases()[name].field.shape)
        shape = (*shape[:2], 3) if name == "any" else shape
        return [noise(shape, name.split("_", maxsplit=1)[0] if name != "any" else "uint8")]


class TestJpegLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        shapes: dict[str, tuple[int | None, ...]] = {"rgb": (16, 24, 3), "gray": (16, 16), "free": (None, None, 3)}
        refused = [np.zeros((16, 24, 4), "uint8"), np.zeros((16, 24, 1), "uint8"), np.zeros((16, 24, 3), "uint16")]
        return {
            kind: Case(field_of("uint8", shape, JPEG), smooth_images(shape), refused) for kind, shape in shapes.items()
        }

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.jpegs(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parents[1] / "golden" / "compressed_image_jpeg"

    def golden_images(self, name: str) -> Sequence[Any]:
        """Return the encoded images; `golden_values` are the pixels that OpenCV decodes from them."""
        return [smooth(tuple(size or 20 for size in self.cases()[name].field.shape))]

    def golden_values(self, name: str) -> Sequence[Any]:
        return list(np.load(self.golden_folder() / f"{name}.npy"))

    def assert_same(self, field: UnischemaField, expected: Any, found: Any) -> None:
        assert found.dtype == field.dtype
        assert expected.shape == found.shape
        assert float(np.abs(expected.astype(int) - found.astype(int)).mean()) < 12


def pillow_pixels(cell: bytes) -> np.ndarray[Any, Any]:
    with Image.open(io.BytesIO(cell)) as opened:
        return np.asarray(opened)


def opencv_pixels(cell: bytes) -> np.ndarray[Any, Any]:
    image = np.asarray(cv2.imdecode(np.frombuffer(cell, np.uint8), cv2.IMREAD_UNCHANGED))
    return image if image.ndim == 2 else image[..., ::-1]


def cells_of_photographs(photographs: list[np.ndarray[Any, Any]]) -> Iterator[tuple[UnischemaField, bytes, Any]]:
    for photograph in photographs:
        for image in (photograph, photograph[..., 1], photograph[:255, 3:100]):
            for codec in (PNG, JPEG, CompressedImageCodec("jpeg", 40)):
                field = field_of("uint8", (None,) * 2 + image.shape[2:], codec)
                yield field, codec.encode(field, image), image


def test_photographs_decode_to_the_pixels_of_opencv_and_pillow_bit_for_bit(photographs: list[Any]) -> None:
    for field, cell, image in cells_of_photographs(photographs):
        found = field.codec.decode(field, cell)  # type: ignore[union-attr]
        np.testing.assert_array_equal(found, opencv_pixels(cell))
        np.testing.assert_array_equal(found, pillow_pixels(cell))
        if field.codec == PNG:
            np.testing.assert_array_equal(found, image)


def test_jpeg_of_every_subsampling_and_kind_decodes_as_opencv_does(photographs: list[Any]) -> None:
    picture = Image.fromarray(photographs[0][:121, :203])
    field = field_of("uint8", (None, None, 3), JPEG)
    for subsampling in (0, 1, 2):
        for options in ({}, {"progressive": True}, {"optimize": True}):
            written = io.BytesIO()
            picture.save(written, "JPEG", subsampling=subsampling, quality=85, **options)
            cell = written.getvalue()
            np.testing.assert_array_equal(JPEG.decode(field, cell), opencv_pixels(cell))


def test_encoded_image_files_have_rgb_channels() -> None:
    red = np.zeros((16, 16, 3), "uint8")
    red[..., 0] = 255
    for codec in (PNG, JPEG):
        cell = codec.encode(field_of("uint8", (16, 16, 3), codec), red)
        assert pillow_pixels(cell)[0, 0].tolist() in ([255, 0, 0], [254, 0, 0])


@pytest.mark.parametrize(("codec", "mode"), [(PNG, "P"), (PNG, "RGB"), (JPEG, "RGB")])
def test_image_of_any_format_decodes_with_either_codec(codec: Any, mode: str) -> None:
    picture = Image.fromarray(smooth((20, 20, 3))).quantize(16) if mode == "P" else Image.fromarray(smooth((20, 20, 3)))
    written = io.BytesIO()
    picture.save(written, "PNG")
    found = codec.decode(field_of("uint8", (20, 20, 3), codec), written.getvalue())
    np.testing.assert_array_equal(found, np.asarray(picture.convert("RGB")))


def saved(image: np.ndarray[Any, Any], image_format: str, mode: str | None = None) -> bytes:
    written = io.BytesIO()
    picture = Image.fromarray(image)
    (picture if mode is None else picture.convert(mode)).save(written, image_format)
    return written.getvalue()


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (saved(noise((4, 5, 4)), "PNG"), "alpha"),
        (saved(noise((4, 5)), "PNG", "LA"), "alpha"),
        (saved(noise((5, 4)), "PNG"), r"5×4 of uint8, but the field declares uint8 of shape \(4, 5, 3\)"),
        (saved(noise((5, 4, 3)), "JPEG", "CMYK"), "the CMYK jpeg is 5×4×3"),
        (saved(noise((5, 4, 3)), "PNG"), "5×4×3"),
        (
            saved(noise((4, 5, 3)), "WEBP"),
            "column 'image': the cell is not an image that fits the field: an image must be PNG or JPEG, got a file",
        ),
        (
            saved(noise((4, 5, 3)), "TIFF"),
            "column 'image': the cell is not an image that fits the field: an image must be PNG or JPEG, got a file",
        ),
        (
            b"",
            "column 'image': the cell is not an image that fits the field: an image must be PNG or JPEG, got a file",
        ),
        (saved(noise((4, 5, 3)), "PNG")[:20], "header"),
        (
            saved(noise((4, 5, 3)), "PNG")[:-1],
            "column 'image': the cell is not an image that fits the field: the png is truncated",
        ),
    ],
)
def test_image_that_does_not_match_the_field_raises(cell: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        PNG.decode(field_of("uint8", (4, 5, 3)), cell)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans(), st.integers(1, 2)), max_size=8))
def test_cached_jpeg_headers_are_not_mixed_up_between_files(
    files: list[tuple[int, int, bool, int]],
) -> None:
    field = UnischemaField("x", "uint8", (None, None, 3), JPEG)
    gray = UnischemaField("x", "uint8", (None, None), JPEG)
    for height, width, is_gray, half in files:
        image = np.full((8 * height, 8 * width) if is_gray else (8 * height, 8 * width, 3), 60, np.uint8)
        cell = CompressedImageCodec("jpeg", 40 * half).encode(gray if is_gray else field, image)
        assert JPEG.decode(gray if is_gray else field, cell).shape == image.shape
        if is_gray:
            assert JPEG.decode(field, cell).shape == (*image.shape, 3)
            continue
        with pytest.raises(DecodeError, match="declares"):
            JPEG.decode(gray, cell)


def test_image_of_another_shape_raises_with_its_row_among_equal_images() -> None:
    field = UnischemaField("x", "uint8", (8, 8, 3), JPEG)
    free = UnischemaField("x", "uint8", (None, None, 3), JPEG)
    good, wide = (JPEG.encode(free, np.zeros((8, width, 3), np.uint8)) for width in (8, 16))
    with pytest.raises(DecodeError, match="8×16×3") as refused:
        JPEG.decode_column(pa.array([good, good, wide, good]), field, np.empty((4, 8, 8, 3), np.uint8))
    assert (refused.value.row, refused.value.column) == (2, "x")


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize(("image_format", "mode"), [("JPEG", "L"), ("JPEG", "CMYK"), ("JPEG", "RGB"), ("PNG", "L")])
def test_gray_and_cmyk_files_become_rgb_where_three_channels_are_declared(
    image_format: str, mode: str, fixed: bool
) -> None:
    cell = saved(smooth((24, 16, 3)), image_format, mode)
    field = field_of("uint8", (24, 16, 3) if fixed else (None, None, 3), JPEG)
    expected = np.asarray(Image.open(io.BytesIO(cell)).convert("RGB"))
    np.testing.assert_array_equal(JPEG.decode(field, cell), expected)
    out = np.empty((2, 24, 16, 3), np.uint8) if fixed else np.empty(2, object)
    JPEG.decode_column(pa.array([cell, saved(smooth((24, 16, 3)), "PNG")]), field, out)
    np.testing.assert_array_equal(out[0], expected)


def test_damaged_cmyk_jpeg_raises() -> None:
    cell = saved(smooth((24, 16, 3)), "JPEG", "CMYK")
    with pytest.raises(DecodeError, match="damaged"):
        JPEG.decode(field_of("uint8", (24, 16, 3), JPEG), cell[: len(cell) // 2])


def test_damaged_png_raises(capfd: pytest.CaptureFixture[str]) -> None:
    image, field = noise((6, 7, 3)), field_of("uint8", (6, 7, 3))
    cell = PNG.encode(field, image)
    refused = 0
    for position in range(len(cell)):
        damaged = bytearray(cell)
        damaged[position] ^= 0x40
        try:
            np.testing.assert_array_equal(PNG.decode(field, bytes(damaged)), image)
        except DecodeError:
            refused += 1
    assert refused > len(cell) - 8
    capfd.readouterr()  # discard what OpenCV prints on standard error about each damaged file


def huge_png(width: int, height: int) -> bytes:
    """Return a small PNG that declares this size without having the pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + kind + content + zlib.crc32(kind + content).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes([8, 2, 0, 0, 0])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def huge_jpeg(width: int, height: int) -> bytes:
    cell = bytearray(saved(smooth((16, 16, 3)), "JPEG"))
    frame = cell.index(b"\xff\xc0")
    cell[frame + 5 : frame + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return bytes(cell)


@pytest.mark.parametrize("cell", [huge_png(2**31 - 1, 2**31 - 1), huge_png(2**15, 2**14), huge_jpeg(65500, 65500)])
def test_too_many_pixels_raise_before_allocation(cell: bytes) -> None:
    field = field_of("uint8", (None, None, 3))
    with pytest.raises(DecodeError, match="an image must have at most 268,435,456 pixels, got"):
        PNG.decode(field, cell)
    with pytest.raises(DecodeError) as caught:
        PNG.decode_column(
            pa.array([PNG.encode(field, noise((2, 2, 3))), cell], pa.binary()), field, empty_column(field, 2)
        )
    assert (caught.value.column, caught.value.row) == ("image", 1)


@pytest.mark.parametrize("kind", [b"IDAT", b"tEXt", b"IEND"])
@pytest.mark.parametrize("length", [60, 2**26, 2**31 - 1, 2**32 - 1])
def test_png_chunk_beyond_the_file_raises_before_allocation(kind: bytes, length: int) -> None:
    field = field_of("uint8", (4, 4))
    cell = bombs.png(4, 4, colors=0, extra=bombs.png_chunk(b"tEXt", b"by hand"))
    np.testing.assert_array_equal(PNG.decode(field, cell), np.zeros((4, 4), "uint8"))
    lying = bombs.png_with_length(cell, kind, length)
    said = "is truncated" if kind == b"IEND" else "exceeds the file"

    def refusal(growth: Callable[[], int]) -> str:
        with pytest.raises(DecodeError) as refused:
            PNG.decode(field, lying)
        return str(refused.value)

    message, grown = grown_in_child(refusal)
    assert said in message
    assert grown < 2**23


def test_image_without_pixels_raises() -> None:
    with pytest.raises(EncodeError, match=r"column 'image': an image must have pixels, got shape \(0, 4\)"):
        PNG.encode(field_of("uint8", (None, None)), np.zeros((0, 4), "uint8"))


def test_non_contiguous_images_encode_correctly() -> None:
    image = noise((8, 9, 3))
    field = field_of("uint8", (None, None, 3))
    for part in (image[::2, ::-1], image.transpose(1, 0, 2), image[2:5, 1:4]):
        np.testing.assert_array_equal(PNG.decode(field, PNG.encode(field, part)), part)
    deep = noise((4, 5), "uint16")
    np.testing.assert_array_equal(
        PNG.decode(field_of("uint16", (4, 5)), PNG.encode(field_of("uint16", (4, 5)), deep.astype(">u2"))), deep
    )


@pytest.mark.parametrize(
    ("dtype", "shape", "codec"),
    [
        ("float32", (4, 5), PNG),
        ("uint16", (4, 5), JPEG),
        ("int8", (4, 5), PNG),
        ("uint8", (4,), PNG),
        ("uint8", (4, 5, 4), PNG),
        ("uint8", (4, 5, 1), PNG),
        ("uint8", (4, 5, 3, 1), PNG),
        ("uint8", (0, 5, 3), PNG),
        ("uint8", (), PNG),
    ],
)
def test_field_that_is_not_an_image_raises(dtype: str, shape: tuple[int, ...], codec: CompressedImageCodec) -> None:
    with pytest.raises(SchemaError, match="field 'image'"):
        field_of(dtype, shape, codec)


def test_image_codec_normalizes_format_and_checks_quality() -> None:
    assert CompressedImageCodec("jpg") == CompressedImageCodec("JPEG") == CompressedImageCodec("jpeg", quality=80)  # type: ignore[arg-type]
    assert CompressedImageCodec(".png").image_codec == "png"
    assert CompressedImageCodec("jpeg", 90) == JPEG != CompressedImageCodec("jpeg", 91)
    for bad in ("webp", "", None, 5, b"png"):
        with pytest.raises(SchemaError, match="image_codec must be 'png' or 'jpeg', got "):
            CompressedImageCodec(bad)  # type: ignore[arg-type]
    for quality in (0, 101, 80.5, True, "80", None):
        with pytest.raises(SchemaError, match="quality"):
            CompressedImageCodec("jpeg", quality)  # type: ignore[arg-type]


def test_image_libraries_are_imported_lazily() -> None:
    script = """
        import sys
        import numpy as np
        import petastore.codecs
        from petastore.errors import MissingExtraError
        from petastore.schema import UnischemaField

        assert not {"cv2", "simplejpeg", "PIL"} & set(sys.modules)
        sys.modules["cv2"] = sys.modules["simplejpeg"] = None
        jpeg = bytes.fromhex("ffd8ffc0000b080002000201011100")
        field = UnischemaField("image", "uint8", (2, 2), petastore.codecs.CompressedImageCodec("jpeg"))
        calls = [
            lambda: field.codec.encode(field, np.zeros((2, 2), "uint8")),
            lambda: field.codec.decode(field, jpeg),
        ]
        for call in calls:
            try:
                call()
            except MissingExtraError as problem:
                assert problem.extra == "image", problem
                assert "pip install 'petastore[image]'" in str(problem)
            else:
                raise AssertionError("nothing was missed")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)
