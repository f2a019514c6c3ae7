"""Which codec a field has and what it can do, and which codec an id in a schema document means."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, Self, TypeVar, cast

from petastore import forks
from petastore.codecs.arrays.compressed import CompressedNdarrayCodec
from petastore.codecs.arrays.ndarray import NdarrayCodec
from petastore.codecs.images.image import CompressedImageCodec
from petastore.codecs.images.image_reversed import ReversedImageCodec
from petastore.codecs.plain import PlainCodec
from petastore.codecs.scalar import ScalarCodec
from petastore.codecs.vector import VectorCodec
from petastore.errors import MetadataError, SchemaError
from petastore.schema.codec import AlikeCodec, Codec, Viewer, ViewingCodec
from petastore.schema.field import UnischemaField

__all__ = ["BoundCodec", "codec_from_json", "codec_of", "register"]

_CodecClass = TypeVar("_CodecClass", bound=type)

_PLAIN = PlainCodec()
_lock = forks.Lock()
_classes: dict[str, type] = {
    codec.codec_id: codec
    for codec in (
        ScalarCodec,
        NdarrayCodec,
        CompressedNdarrayCodec,
        CompressedImageCodec,
        ReversedImageCodec,
        VectorCodec,
    )
}

_HOMES: dict[str, str] = {"arrow": "petastore.codecs.arrow_codec"}
"""Modules that register rarely used codecs, imported when a document names them."""


def codec_of(field: UnischemaField) -> Codec:
    """The codec that a field declares, or `PlainCodec()` where it declares none.

    Example:
        >>> codec_of(UnischemaField("id", "int64"))
        PlainCodec()
    """
    return _PLAIN if field.codec is None else field.codec


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class BoundCodec:
    """The codec of a field with its faces: what is the same for all columns of the field, found out once a reader.

    Thread-safe, as the codec is.

    Example:
        >>> bound = BoundCodec.of(UnischemaField("x", "float32", (2,), NdarrayCodec()))
        >>> bound.codec, bound.view is None, bound.takes_bytes
        (NdarrayCodec(), False, False)
    """

    field: UnischemaField
    codec: Codec

    view: Viewer | None
    """Gives columns that need no decoding; None where the codec has no such face, or values are Python objects."""

    takes_bytes: bool
    """Whether it is a `petastore.schema.codec.BytesCodec`."""

    view_alike: Viewer | None = None
    """Gives columns of a free shape whose values all have one; None where the codec has no such face."""

    @classmethod
    def of(cls, field: UnischemaField) -> Self:
        """That of a field."""
        codec = codec_of(field)
        view = view_alike = None
        if not field.dtype.hasobject:
            if field.is_fixed and hasattr(codec, "viewer"):
                view = cast("ViewingCodec", codec).viewer(field)
            elif not field.is_fixed and hasattr(codec, "alike_viewer"):
                view_alike = cast("AlikeCodec", codec).alike_viewer(field)
        return cls(field, codec, view, hasattr(codec, "decode_bytes"), view_alike)


def register(codec_class: _CodecClass) -> _CodecClass:
    """Make a codec of one's own known to schema documents; also a class decorator.

    Register it in every process that opens datasets with it, before it opens them: a document names the id and never
    imports anything. Thread-safe.

    Args:
        codec_class: A class that keeps the promise of `petastore.schema.codec.Codec`, and that can be called with its
            `config()` as keyword arguments. `petastore.testing.codec_laws` tests that.

    Raises:
        SchemaError: It is no codec class, or another class has its id.

    Example:
        >>> import dataclasses
        >>> @register
        ... @dataclasses.dataclass(frozen=True)
        ... class ReversedCodec(NdarrayCodec):
        ...     codec_id = "doc_reversed"
        >>> codec_from_json({"id": "doc_reversed"})
        ReversedCodec()
    """
    codec_id = getattr(codec_class, "codec_id", None)
    if not isinstance(codec_class, type) or not isinstance(codec_id, str) or not codec_id:
        raise SchemaError(f"{codec_class!r} cannot be registered: a codec class has a text `codec_id`")
    missing = [name for name in _PROMISED if not callable(getattr(codec_class, name, None))]
    if missing:
        raise SchemaError(f"{codec_class.__name__} cannot be registered: it lacks {', '.join(missing)}")
    with _lock:
        known = _classes.setdefault(codec_id, codec_class)
        if known is not codec_class and _full_name(known) != _full_name(codec_class):
            raise SchemaError(
                f"{_full_name(codec_class)} cannot be registered: the id {codec_id!r} belongs to {_full_name(known)}"
            )
        _classes[codec_id] = codec_class
    return codec_class


_PROMISED = (
    "config", "check_field", "storage_type", "encode", "decode", "encode_column", "decode_column",
)  # fmt: skip


def codec_from_json(mapping: Mapping[str, Any]) -> Codec:
    """The codec that a schema document describes: `{"id": …, **configuration}`.

    Raises:
        MetadataError: The id is unknown, or the configuration is not one that this codec takes.

    Example:
        >>> codec_from_json({"id": "scalar", "spark_type": "int"})
        ScalarCodec(spark_type='int')
    """
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get("id"), str):
        raise MetadataError(f"a codec is described by an object with an id, not by {mapping!r}")
    if mapping["id"] in _HOMES:
        importlib.import_module(_HOMES[mapping["id"]])
    codec_class = _classes.get(mapping["id"])
    if codec_class is None:
        known = ", ".join(sorted({*_classes, *_HOMES}))
        raise MetadataError(
            f"no codec has the id {mapping['id']!r}; known are {known}. Import the module that registers it "
            "(petastore.codecs.register), or install a newer release of petastore"
        )
    configuration = {key: value for key, value in mapping.items() if key != "id"}
    try:
        codec: Codec = codec_class(**configuration)
    except (TypeError, ValueError) as problem:
        raise MetadataError(f"the codec {mapping['id']!r} cannot be built from {configuration!r}: {problem}") from None
    return codec


def _full_name(codec_class: type) -> str:
    return f"{codec_class.__module__}.{codec_class.__qualname__}"
