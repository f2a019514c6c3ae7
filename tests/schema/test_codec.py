"""Tests of the codec protocols: isinstance checks find the optional interfaces of each codec."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    PlainCodec,
    ScalarCodec,
    VectorCodec,
)
from petastore.schema.field import BytesCodec, Codec, MeasuringCodec, ViewingCodec

ALL_FACES = (ViewingCodec, BytesCodec, MeasuringCodec)
FACES = {
    PlainCodec(): {ViewingCodec, MeasuringCodec},
    ScalarCodec("int"): {ViewingCodec, MeasuringCodec},
    NdarrayCodec(): {ViewingCodec, MeasuringCodec},
    CompressedNdarrayCodec(): {BytesCodec, MeasuringCodec},
    CompressedImageCodec("png"): {BytesCodec, MeasuringCodec},
    VectorCodec(): {MeasuringCodec},
}


@pytest.mark.parametrize(("codec", "faces"), FACES.items(), ids=lambda value: type(value).__name__)
def test_codecs_have_their_optional_interfaces(codec: Any, faces: set[Any]) -> None:
    assert isinstance(codec, Codec)
    assert {face for face in ALL_FACES if isinstance(codec, face)} == faces


def test_class_with_only_decoded_sizes_is_not_a_codec() -> None:
    class Measures:
        def decoded_sizes(self, cells: Any, field: Any) -> None:
            """Return nothing."""

    assert not any(isinstance(Measures(), face) for face in (Codec, *ALL_FACES))
