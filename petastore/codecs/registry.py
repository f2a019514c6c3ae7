"""Codec registry: find the codec of a field or of an id, and register new codecs.

Schema documents identify codecs by ids.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any, Self, TypeVar, cast

from petastore import forks
from petastore.codecs.arrays.compressed import CompressedNdarrayCodec
from petastore.codecs.arrays.ndarray import NdarrayCodec
from petastore.codecs.images.image import CompressedImageCodec, ReversedImageCodec
from petastore.codecs.plain import PlainCodec
from petastore.codecs.scalar import ScalarCodec
from petastore.codecs.vector import VectorCodec
from petastore.errors import MetadataError, SchemaError
from petastore.schema.field import Codec, UnischemaField, Viewer, ViewingCodec

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

_HOMES: dict[str, str] = {"arrow": "petastore.codecs.arrow_cells"}
"""Dict from codec id to the module that registers the codec, for rarely used codecs.

The module is imported when a schema document contains the id.
"""


def codec_of(field: UnischemaField) -> Codec:
    """Return the codec that a field declares, or `PlainCodec()` if it declares none.

    Example:
        >>> codec_of(UnischemaField("id", "int64"))
        PlainCodec()
    """
    return _PLAIN if field.codec is None else field.codec


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class BoundCodec:
    """A field's codec, with its optional fast methods.

    They are looked up once per reader. Thread-safe, like the codec.

    Example:
        >>> bound = BoundCodec.of(UnischemaField("x", "float32", (2,), NdarrayCodec()))
        >>> bound.codec, bound.view is None, bound.takes_bytes
        (NdarrayCodec(), False, False)
    """

    field: UnischemaField
    codec: Codec

    view: Viewer | None
    """Function that views a column of fixed shape as a NumPy array, zero-copy.

    None if the codec has no such function, if the shape is variable, or if values are Python objects.
    """

    takes_bytes: bool
    """Whether the codec is a `petastore.schema.field.BytesCodec`, which decodes raw bytes."""

    @classmethod
    def of(cls, field: UnischemaField) -> Self:
        """Return a field's codec with its optional fast methods."""
        codec = codec_of(field)
        is_viewed = field.is_fixed and not field.dtype.hasobject and hasattr(codec, "viewer")
        view = cast("ViewingCodec", codec).viewer(field) if is_viewed else None
        return cls(field, codec, view, hasattr(codec, "decode_bytes"))


def register(codec_class: _CodecClass) -> _CodecClass:
    """Register your own codec, so that schema documents can name it.

    The function also works as a class decorator. Register a codec in every process before opening a dataset that uses
    it: schema documents contain only the codec's id, and opening a dataset imports no code. Thread-safe.

    Args:
        codec_class: A class that implements `petastore.schema.field.Codec`. Its constructor must accept the items of
            `config()` as keyword arguments. `petastore.testing.codec_laws` has tests for it.

    Raises:
        SchemaError: `codec_class` is not a codec class, or another class has its id.

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
        raise SchemaError(f"codec_class must have a str `codec_id`, got {codec_class!r}")
    missing = [name for name in _PROMISED if not callable(getattr(codec_class, name, None))]
    if missing:
        raise SchemaError(
            f"codec_class must implement {', '.join(missing)}, got {codec_class.__name__} without "
            f"{'it' if len(missing) == 1 else 'them'}"
        )
    with _lock:
        known = _classes.setdefault(codec_id, codec_class)
        if known is not codec_class and _full_name(known) != _full_name(codec_class):
            raise SchemaError(
                f"codec_id must be unique, got {codec_id!r} for {_full_name(codec_class)}, but {_full_name(known)} "
                "already has this id. Choose another one"
            )
        _classes[codec_id] = codec_class
    return codec_class


_PROMISED = (
    "config", "check_field", "storage_type", "encode", "decode", "encode_column", "decode_column",
)  # fmt: skip


def codec_from_json(mapping: Mapping[str, Any]) -> Codec:
    """Return the codec that a schema document describes: `{"id": …, **configuration}`.

    Raises:
        MetadataError: The id is unknown, or the codec does not accept the configuration.

    Example:
        >>> codec_from_json({"id": "scalar", "spark_type": "int"})
        ScalarCodec(spark_type='int')
    """
    if not isinstance(mapping, Mapping) or not isinstance(mapping.get("id"), str):
        raise MetadataError(f"a codec must be described by an object with an id, got {mapping!r}")
    if mapping["id"] in _HOMES:
        importlib.import_module(_HOMES[mapping["id"]])
    codec_class = _classes.get(mapping["id"])
    if codec_class is None:
        known = ", ".join(sorted({*_classes, *_HOMES}))
        raise MetadataError(
            f"codec id must be one of {known}, got {mapping['id']!r}. Import the module that registers it "
            "(petastore.codecs.register), or install a newer release of petastore"
        )
    configuration = {key: value for key, value in mapping.items() if key != "id"}
    try:
        codec: Codec = codec_class(**configuration)
    except (TypeError, ValueError) as problem:
        raise MetadataError(
            f"the constructor of codec {mapping['id']!r} must accept {configuration!r}, got {type(problem).__name__}: "
            f"{problem}"
        ) from None
    return codec


def _full_name(codec_class: type) -> str:
    return f"{codec_class.__module__}.{codec_class.__qualname__}"
