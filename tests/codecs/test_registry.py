"""Tests of the codec registry: stable ids, custom codecs, and metadata errors for invalid configuration."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import (
    CompressedImageCodec,
    CompressedNdarrayCodec,
    NdarrayCodec,
    PlainCodec,
    ScalarCodec,
    register,
)
from petastore.codecs.registry import BoundCodec, codec_from_json, codec_of
from petastore.errors import MetadataError, SchemaError
from petastore.schema import Codec, UnischemaField

KNOWN: list[Codec] = [ScalarCodec("int"), NdarrayCodec(), CompressedNdarrayCodec(), CompressedImageCodec("jpeg", 90)]


@pytest.mark.parametrize("codec", KNOWN, ids=lambda codec: codec.codec_id)
def test_codec_registry_finds_each_codec_by_id(codec: Codec) -> None:
    assert codec_from_json({"id": codec.codec_id, **codec.config()}) == codec
    assert isinstance(codec, Codec)


def test_codec_ids_are_stable() -> None:
    assert [codec.codec_id for codec in KNOWN] == ["scalar", "ndarray", "compressed_ndarray", "compressed_image"]


def test_field_without_a_codec_uses_plain_codec() -> None:
    assert codec_of(UnischemaField("x", "int32")) == PlainCodec()
    assert codec_of(UnischemaField("x", "int32", (2,), NdarrayCodec())) == NdarrayCodec()


def test_unknown_codec_id_raises_and_lists_known_ids() -> None:
    with pytest.raises(MetadataError, match=r"^codec id must be one of .*, got 'wavelet'\. Import") as refused:
        codec_from_json({"id": "wavelet"})
    # Doctests and other tests register codecs, too.
    named = set(str(refused.value).partition("must be one of ")[2].partition(", got ")[0].split(", "))
    assert {"compressed_image", "compressed_ndarray", "ndarray", "reversed_image", "scalar", "vector"} <= named
    with pytest.raises(MetadataError, match="got 'plain'"):
        codec_from_json({"id": "plain"})


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(
    mapping=JSON
    | st.fixed_dictionaries(
        {"id": st.sampled_from(["scalar", "ndarray", "compressed_ndarray", "compressed_image"])},
        optional={"spark_type": JSON, "image_codec": JSON, "quality": JSON, "codec_id": JSON, "self": JSON},
    )
)
def test_codec_from_any_json_succeeds_or_raises_metadata_error(mapping: Any) -> None:
    try:
        codec = codec_from_json(mapping)
    except MetadataError:
        return
    assert codec_from_json({"id": codec.codec_id, **codec.config()}) == codec


def test_custom_codec_is_found_after_register() -> None:
    @register
    @dataclasses.dataclass(frozen=True)
    class Renamed(NdarrayCodec):
        codec_id: ClassVar[str] = "test_renamed"

    assert codec_from_json({"id": "test_renamed"}) == Renamed()
    assert register(Renamed) is Renamed

    class Other(NdarrayCodec):
        codec_id: ClassVar[str] = "test_renamed"

    with pytest.raises(SchemaError, match="already has this id"):
        register(Other)

    class Thief(NdarrayCodec):
        codec_id: ClassVar[str] = "ndarray"

    with pytest.raises(
        SchemaError,
        match=r"codec_id must be unique, got 'ndarray' .* petastore\.codecs\.arrays\.ndarray\.NdarrayCodec already has",
    ):
        register(Thief)


@pytest.mark.parametrize(
    "bad", [5, object, type("NoId", (), {}), type("Half", (), {"codec_id": "half"}), NdarrayCodec()]
)
def test_register_raises_for_objects_that_are_not_codec_classes(bad: Any) -> None:
    with pytest.raises(SchemaError, match=r"^codec_class must "):
        register(bad)


@pytest.mark.parametrize(
    ("field", "has_view", "takes_bytes"),
    [
        (UnischemaField("x", "int32"), True, False),
        (UnischemaField("x", "float32", (2,)), True, False),
        (UnischemaField("x", "float32", (None,)), False, False),
        (UnischemaField("x", str), False, False),
        (UnischemaField("x", "int64", (), ScalarCodec("int")), True, False),
        (UnischemaField("x", "float32", (2,), NdarrayCodec()), True, False),
        (UnischemaField("x", "float32", (2,), CompressedNdarrayCodec()), False, True),
        (UnischemaField("x", "uint8", (2, 2), CompressedImageCodec()), False, True),
    ],
)
def test_bound_codec_has_the_codecs_optional_methods(field: UnischemaField, has_view: bool, takes_bytes: bool) -> None:
    bound = BoundCodec.of(field)
    assert (bound.field, bound.codec) == (field, codec_of(field))
    assert (bound.view is not None, bound.takes_bytes) == (has_view, takes_bytes)
