"""Tests of `ReversedImageCodec`: codec laws, and files with channels in BGR order."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from petastore.codecs import CompressedImageCodec, ImageDecode
from petastore.codecs.images.image import ReversedImageCodec, hinted_field
from petastore.errors import EncodeError, InvalidArgumentError, SchemaError
from petastore.schema import UnischemaField
from petastore.testing.codec_laws import Case
from tests.codecs import bombs_of
from tests.codecs.measured_laws import MeasuredCodecLaws

CODEC = ReversedImageCodec("png")


def field_of(shape: tuple[int | None, ...]) -> UnischemaField:
    return UnischemaField("image", "uint8", shape, CODEC)


def images(shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    return hnp.arrays("uint8", shape)


class TestReversedLaws(MeasuredCodecLaws):
    def cases(self) -> Mapping[str, Case]:
        refused = [np.zeros((4, 5, 4), "uint8"), np.zeros((4, 5, 3), "float32"), "image"]
        return {
            "rgb": Case(field_of((4, 5, 3)), images((4, 5, 3)), refused),
            "gray": Case(field_of((5, 3)), images((5, 3)), refused),
            "free": Case(field_of((None, None, 3)), images((3, 2, 3)), refused),
        }

    def bombs(self, field: UnischemaField) -> st.SearchStrategy[Any]:
        return bombs_of.pngs(field)

    def golden_folder(self) -> Path:
        return Path(__file__).parents[1] / "golden" / "reversed_image"

    def golden_values(self, name: str) -> Sequence[Any]:
        shape = tuple(size or 6 for size in self.cases()[name].field.shape)
        return [np.arange(np.prod(shape), dtype="uint8").reshape(shape) * 3]


def test_reversed_image_codec_stores_bgr() -> None:
    field, image = field_of((2, 4, 3)), np.arange(24, dtype="uint8").reshape(2, 4, 3)
    with Image.open(io.BytesIO(CODEC.encode(field, image))) as opened:
        np.testing.assert_array_equal(np.asarray(opened)[..., ::-1], image)


def test_reversed_image_codec_accepts_the_same_formats() -> None:
    assert ReversedImageCodec(".JPG", 90) == ReversedImageCodec("jpeg", 90)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="image_codec must be 'png' or 'jpeg', got 'webp'"):
        ReversedImageCodec("webp")  # type: ignore[arg-type]


def test_reversed_image_codec_rejects_rgb_mode() -> None:
    with pytest.raises(
        InvalidArgumentError, match="decode must name fields with CompressedImageCodec, got 'image', whose codec is"
    ):
        hinted_field(field_of((4, 5, 3)), ImageDecode(mode="gray"))


def test_reversed_image_codec_rejects_image_files() -> None:
    field = field_of((4, 5, 3))
    cell = CompressedImageCodec("png").encode(field, np.zeros((4, 5, 3), np.uint8))
    with pytest.raises(
        EncodeError, match=r"got the bytes of an image file. Give arrays, or declare CompressedImageCodec"
    ):
        ReversedImageCodec("png").encode_column([cell], field)
    with pytest.raises(
        EncodeError, match=r"got the bytes of an image file. Give arrays, or declare CompressedImageCodec"
    ):
        ReversedImageCodec("png").encode_arrow(pa.array([cell]), field)
    assert ReversedImageCodec("png").encode_arrow(pa.array([bytes(60)]), field) is None
