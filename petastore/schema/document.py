"""Schema document: a Unischema as versioned JSON, stored in `_common_metadata`.

```json
{"format": "petastore.unischema", "version": 1, "name": "user",
 "fields": [{"name": "id", "dtype": "int64", "shape": [], "nullable": false, "codec": null},
            {"name": "face", "dtype": "uint8", "shape": [64, 64, 3], "nullable": false,
             "codec": {"id": "compressed_image", "image_codec": "png", "quality": 80}}]}
```

A version that a reader does not know raises an error that names the required release. Nothing in the document is
executed: the id of a codec is looked up in a registry that the caller passes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from petastore.errors import MetadataError, PetastoreError, SchemaError
from petastore.schema.dtypes import dtype_from_name
from petastore.schema.field import Codec, UnischemaField

__all__ = ["DOCUMENT_KEY", "DOCUMENT_VERSION", "dump_document", "parse_document"]

DOCUMENT_KEY = "petastore.unischema"
"""Key of the document in the key-value metadata of `_common_metadata` and of each data file."""

DOCUMENT_VERSION = 1
"""The newest version that this release reads, and the one that it writes."""

_MAX_BYTES = 64 * 1024 * 1024
_MAX_FIELDS = 100_000
_AGAIN = ". Write the schema again with `petastore generate-metadata --unischema-class MODULE.NAME`"


def dump_document(name: str, fields: Iterable[UnischemaField]) -> str:
    """Return the JSON document of a schema; the bytes are deterministic.

    Two equal schemas have different documents if only one of them declares a `ScalarCodec` that the dtype implies.
    """
    document = {
        "format": DOCUMENT_KEY,
        "version": DOCUMENT_VERSION,
        "name": name,
        "fields": [_field_json(field) for field in fields],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _field_json(field: UnischemaField) -> dict[str, Any]:
    codec = None if field.codec is None else {"id": field.codec.codec_id, **field.codec.config()}
    return {
        "name": field.name,
        "dtype": field.dtype_name,
        "shape": list(field.shape),
        "nullable": field.nullable,
        "codec": codec,
    }


def parse_document(
    document: str | bytes,
    *,
    codec_from_json: Callable[[Mapping[str, Any]], Codec],
    source: str,
    odd: dict[str, str] | None = None,
) -> tuple[str, tuple[UnischemaField, ...]]:
    """Return the name and the fields of the schema in a document.

    Args:
        document: JSON text, which is not trusted.
        codec_from_json: Function that returns the codec for `{"id": …, **configuration}`.
        source: Origin of the document, for messages.
        odd: Dict to which invalid fields are added with the reason, such as an int32 with a codec for text; these
            fields are omitted. With None, an invalid field raises an error.

    Raises:
        MetadataError: The document is damaged, too large, or of a newer version.
    """
    if len(document) > _MAX_BYTES:
        raise MetadataError(
            f"{source}: the schema document must have at most {_MAX_BYTES:,} bytes, got {len(document):,}"
        )
    try:
        parsed = json.loads(document)
    except (ValueError, RecursionError) as problem:
        raise MetadataError(
            f"{source}: the schema document must be JSON, got invalid JSON ({problem}){_AGAIN}"
        ) from None
    if not isinstance(parsed, dict) or parsed.get("format") != DOCUMENT_KEY:
        raise MetadataError(f"{source}: the schema document must have the format {DOCUMENT_KEY!r}{_AGAIN}")
    version = parsed.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise MetadataError(f"{source}: the schema document must have a version of at least 1, got {version!r}{_AGAIN}")
    if version > DOCUMENT_VERSION:
        needed = parsed.get("needs", "a newer release of petastore")
        raise MetadataError(
            f"{source}: the schema document has version {version}, but this release of petastore reads only up to "
            f"{DOCUMENT_VERSION}. Install {needed}"
        )
    fields = parsed.get("fields")
    if not isinstance(parsed.get("name"), str) or not isinstance(fields, list) or len(fields) > _MAX_FIELDS:
        raise MetadataError(
            f"{source}: the schema document must have a name and a list of at most {_MAX_FIELDS:,} fields{_AGAIN}"
        )
    found = tuple(_fields_from_json(fields, codec_from_json, source, odd))
    if len({*(odd or ()), *(field.name for field in found)}) < len(fields):
        names = sorted(str(item["name"]) for item in fields)
        twice = next(one for one, other in itertools.pairwise(names) if one == other)
        raise MetadataError(
            f"{source}: the fields of the schema document must have distinct names, got {twice!r} twice{_AGAIN}"
        )
    return parsed["name"], found


def _fields_from_json(
    items: Iterable[Any], codec_from_json: Callable[[Mapping[str, Any]], Codec], source: str, odd: dict[str, str] | None
) -> Iterator[UnischemaField]:
    for item in items:
        try:
            yield _field_from_json(item, codec_from_json, source)
        except MetadataError as problem:
            if odd is None or not isinstance(problem.__cause__, SchemaError):
                raise
            odd[str(item["name"])] = f"{source}: {problem.__cause__}"


def _field_from_json(item: Any, codec_from_json: Callable[[Mapping[str, Any]], Codec], source: str) -> UnischemaField:
    try:
        codec = None if item["codec"] is None else codec_from_json(item["codec"])
        if not isinstance(item["nullable"], bool) or not isinstance(item["shape"], list):
            raise TypeError("nullable must be true or false, and shape a list")
        return UnischemaField(
            item["name"], dtype_from_name(item["dtype"]), tuple(item["shape"]), codec, item["nullable"]
        )
    except (KeyError, TypeError, PetastoreError) as problem:
        raise MetadataError(f"{source}: the schema document has an invalid field {item!r}: {problem}") from problem
