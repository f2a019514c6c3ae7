"""Tests of image files as input of writers: checked by their headers, stored unchanged, decoded as RGB."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import petastore
from petastore.codecs import CompressedImageCodec
from petastore.codecs.images.image import check_file, image_cells, image_file, is_image_struct
from petastore.errors import EncodeError, SchemaError
from petastore.schema import Unischema, UnischemaField

FREE = UnischemaField("image", "uint8", (None, None, 3), CompressedImageCodec("jpeg"))
FIXED = UnischemaField("image", "uint8", (24, 16, 3), CompressedImageCodec("png"), nullable=True)
HUGGING_FACE = pa.struct({"bytes": pa.binary(), "path": pa.string()})


def photo(height: int = 24, width: int = 16, *, mode: str = "RGB", image_format: str = "JPEG") -> bytes:
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack([rows * 5 % 256, columns * 7 % 256, (rows + columns) % 256], axis=-1).astype(np.uint8)
    written = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(written, image_format)
    return written.getvalue()


FILES = [photo(), photo(mode="L"), photo(mode="CMYK"), photo(image_format="PNG")]


def cells_at(url: Path) -> list[Any]:
    """Return the stored cells of the data files."""
    import pyarrow.dataset as pads

    cells: list[Any] = pads.dataset(url, format="parquet").to_table()["image"].to_pylist()
    return cells


@pytest.mark.parametrize("field", [FREE, FIXED])
def test_image_files_are_stored_unchanged_and_decoded_as_rgb(tmp_path: Path, field: UnischemaField) -> None:
    (tmp_path / "one.jpg").write_bytes(FILES[0])
    schema = Unischema("photos", [field])
    hugging_face = [{"bytes": file, "path": None} for file in FILES[1:]]
    given: dict[str, Any] = {
        "rows": [{"image": file} for file in FILES],
        "views": [{"image": memoryview(bytearray(file))} for file in FILES],
        "column": {"image": FILES},
        "table": pa.table({"image": pa.array(FILES, pa.large_binary())}),
        "structs": pa.table({"image": pa.array([{"path": str(tmp_path / "one.jpg")}, *hugging_face], HUGGING_FACE)}),
        "dicts": [{"image": {"path": str(tmp_path / "one.jpg")}}, *({"image": value} for value in hugging_face)],
    }
    expected = [np.asarray(Image.open(io.BytesIO(file)).convert("RGB")) for file in FILES]
    for name, data in given.items():
        petastore.write_dataset(tmp_path / name, schema, data)
        assert cells_at(tmp_path / name) == FILES
        with petastore.make_reader(str(tmp_path / name), shuffle_row_groups=False) as reader:
            found = [row.image for row in reader]
        assert all(map(np.array_equal, found, expected)), name


def test_hugging_face_image_columns_are_inferred(tmp_path: Path) -> None:
    gray = [{"bytes": photo(mode="L", image_format="PNG"), "path": "1.png"}, None]
    colors = [{"bytes": photo(mode="L"), "path": "1.jpg"}, {"bytes": photo(), "path": None}]
    sound = [{"bytes": b"RIFF....", "path": "1.wav"}]
    fields = petastore.infer_schema({"a": pa.array(gray, HUGGING_FACE), "b": pa.array(colors, HUGGING_FACE)})
    assert list(fields) == [
        UnischemaField("a", "uint8", (None, None), CompressedImageCodec("png"), nullable=True),
        UnischemaField("b", "uint8", (None, None, 3), CompressedImageCodec("jpeg")),
    ]
    petastore.write_dataset(tmp_path / "sound", {"sound": pa.array(sound, HUGGING_FACE)})
    with petastore.make_reader(str(tmp_path / "sound")) as reader:
        assert [row.sound for row in reader] == sound


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (photo(30), "the jpeg is 30×16×3 of uint8, but the field declares"),
        (photo(mode="RGBA", image_format="PNG"), "alpha"),
        (photo()[:20], "the jpeg is truncated inside its header"),
        (
            photo(image_format="PNG")[:-1],
            "column 'image', row 1: the file cannot be stored as an image: the png is truncated",
        ),
        (
            b"GIF89a",
            "column 'image', row 1: the file cannot be stored as an image: an image must be PNG or JPEG, got a",
        ),
    ],
)
def test_image_file_that_does_not_match_the_field_raises_with_its_row(tmp_path: Path, file: bytes, said: str) -> None:
    schema, good = Unischema("photos", [FIXED]), photo()
    for data in ([{"image": good}, {"image": file}], pa.table({"image": [None, good, file]}).slice(1)):
        with pytest.raises(EncodeError, match=said) as refused:
            petastore.write_dataset(tmp_path / "x", schema, data)
        assert (refused.value.column, refused.value.row) == ("image", 1)
    with pytest.raises(EncodeError, match=r"must have bytes, or the path of a local file, got 'no.jpg'"):
        petastore.write_dataset(tmp_path / "x", schema, [{"image": {"bytes": None, "path": "no.jpg"}}])


def test_raw_pixel_bytes_are_not_image_files() -> None:
    """Spark DataFrames may contain raw pixels, which can begin with the same bytes as a JPEG."""
    pixels = b"\xff\xd8\xff" + bytes(24 * 16 * 3 - 3)
    assert image_cells(pa.array([pixels]), FIXED) is None
    assert image_cells(pa.array([[1, 2]]), FIXED) is None
    assert image_cells(pa.array([FILES[0]]), FIXED) == pa.array([FILES[0]])


def test_arrays_are_not_treated_as_image_files() -> None:
    assert image_file(np.zeros((2, 2, 3), np.uint8), FREE) is None
    assert image_file({"bytes": bytearray(b"x")}, FREE) == b"x"
    check_file(np.frombuffer(FILES[0], np.uint8), FREE)
    assert is_image_struct(HUGGING_FACE)
    assert not is_image_struct(pa.struct({"bytes": pa.string(), "path": pa.string()}))
    assert not is_image_struct(pa.binary())


def test_uint16_field_needs_a_16_bit_file() -> None:
    deep = UnischemaField("image", "uint16", (None, None, 3), CompressedImageCodec("png"))
    with pytest.raises(EncodeError, match="uint8, but the field declares uint16"):
        image_cells(pa.array([FILES[3]]), deep)
    with pytest.raises(SchemaError):
        UnischemaField("image", "uint16", (None, None, 3), CompressedImageCodec("jpeg"))
