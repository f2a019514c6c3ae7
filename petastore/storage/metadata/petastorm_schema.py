"""Convert Petastorm's pickled schema to a schema document. No I/O.

The pickle is in the metadata of `_common_metadata`. All releases of Petastorm pickle a `Unischema` from the package
`petastorm` or one of its predecessors. They use protocols 0 to 5, and the names of Python 2 or 3. The fields have one
of three forms: a class, a class rebuilt as a tuple, or PySpark's form of named tuples. `NAMES` has every class and
function that may occur in a pickle. The result is JSON, which is parsed and checked like any schema document; codecs
are identified by their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from petastore.errors import MetadataError
from petastore.schema.document import DOCUMENT_KEY, DOCUMENT_VERSION
from petastore.storage.metadata.pickled import PACKAGES, Name, OldText, Record, described, read_pickle

__all__ = ["NAMES", "PETASTORM_SCHEMA_KEY", "petastorm_document"]

PETASTORM_SCHEMA_KEY = b"dataset-toolkit.unischema.v1"
"""Key of the pickled schema in the key-value metadata of `_common_metadata`."""

_BUILTINS = ("builtins", "__builtin__")
_COPYREG = ("copyreg", "copy_reg")
_CODECS = ("ScalarCodec", "NdarrayCodec", "CompressedNdarrayCodec", "CompressedImageCodec")
_NUMPY_DTYPES = {
    "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64",
    "uint8": "uint8", "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "float16": "float16", "float32": "float32", "float64": "float64", "complex64": "complex64",
    "complex128": "complex128", "datetime64": "datetime64", "timedelta64": "timedelta64",
    "bool_": "bool", "bool": "bool", "bool8": "bool",
    "str_": "str", "unicode_": "str", "bytes_": "bytes", "string_": "bytes", "object_": "object",
    "byte": "int8", "ubyte": "uint8", "short": "int16", "ushort": "uint16", "intc": "int32", "uintc": "uint32",
    "int_": "int64", "uint": "uint64", "longlong": "int64", "ulonglong": "uint64",
    "half": "float16", "single": "float32", "double": "float64", "float_": "float64",
}  # fmt: skip
_PYTHON_DTYPES = {
    "int": "int64", "long": "int64", "float": "float64", "bool": "bool", "str": "str", "unicode": "str",
    "bytes": "bytes",
}  # fmt: skip
_SPARK_TYPES = {
    "ByteType": "tinyint", "ShortType": "smallint", "IntegerType": "int", "LongType": "bigint", "FloatType": "float",
    "DoubleType": "double", "BooleanType": "boolean", "StringType": "string", "BinaryType": "binary",
    "DateType": "date", "TimestampType": "timestamp", "TimestampNTZType": "timestamp_ntz",
}  # fmt: skip
_OTHER_SPARK_TYPES = ("DecimalType", "CharType", "VarcharType", "ArrayType")
# Many fields of a pickle may share one large object, so the work for each use of an object is limited.
_MAX_DIMENSIONS = 64
_MAX_NAME = 500
_FIELD_PARTS = ("name", "numpy_dtype", "shape", "codec", "nullable")
_DTYPE_TEXT = re.compile(r"[|<>=]?([biufc])([0-9]{1,2})|[|<>=]?([SUO])[0-9]{0,9}|[|<>=]?([mM])8")
_DTYPE_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
_DTYPE_LETTERS = {"S": "bytes", "U": "str", "O": "object", "M": "datetime64", "m": "timedelta64"}


def _names() -> dict[tuple[str, str], str]:
    names = {("collections", "OrderedDict"): "OrderedDict", ("pyspark.serializers", "_restore"): "restore"}
    names |= {(package + ".unischema", name): name for package in PACKAGES for name in ("Unischema", "UnischemaField")}
    names |= {(package + ".codecs", name): name for package in PACKAGES for name in _CODECS}
    names |= {(module, "_reconstructor"): "reconstructor" for module in _COPYREG}
    names |= {(module, name): name for module in _BUILTINS for name in ("object", "tuple")}
    names |= {(module, name): f"dtype {dtype}" for module in _BUILTINS for name, dtype in _PYTHON_DTYPES.items()}
    names |= {("numpy", name): f"dtype {dtype}" for name, dtype in _NUMPY_DTYPES.items()}
    names |= {("numpy", "dtype"): "dtype", ("decimal", "Decimal"): "dtype decimal"}
    # Python 3 pickles bytes with protocols 0 to 2 as text and a call of `_codecs.encode`.
    names |= {("_codecs", "encode"): "bytes"}
    types = (*_SPARK_TYPES, *_OTHER_SPARK_TYPES)
    return names | {("pyspark.sql.types", name): f"Spark {name}" for name in types}


NAMES: Mapping[tuple[str, str], str] = _names()
"""Every (module, name) that a pickled schema may use, with its meaning."""


def petastorm_document(pickled: bytes, stored: pa.Schema, *, source: str) -> str:
    r"""Convert a pickled schema of Petastorm to a schema document (JSON).

    Args:
        pickled: Value of `PETASTORM_SCHEMA_KEY`, not trusted.
        stored: Arrow schema of the stored columns. For fields without a codec, it has facts that the pickle lacks:
            whether bytes are stored as text, and the precision of decimals.
        source: Origin of the pickle, for messages.

    Raises:
        MetadataError: The pickle is damaged, too large, not a schema, or names a class or function that Petastorm's
            schemas do not use.

    Example:
        >>> pickled = (
        ...     b"ccopy_reg\n_reconstructor\n(cpetastorm.unischema\nUnischema\nc__builtin__\nobject\nNtR"
        ...     b"(dS'_name'\nS'user'\nsS'_fields'\nccollections\nOrderedDict\n((l(lS'id'\na"
        ...     b"cpetastorm.unischema\nUnischemaField\n(S'id'\ncnumpy\nint64\n(tNI00\ntRaatRsb."
        ... )
        >>> json.loads(petastorm_document(pickled, pa.schema([]), source="here"))["fields"]
        [{'name': 'id', 'dtype': 'int64', 'shape': [], 'nullable': False, 'codec': None}]
    """
    schema = read_pickle(pickled, NAMES, source=f"{source}, the schema that Petastorm pickled")
    try:
        name, fields = _schema(schema, stored)
    except _NoSchemaError as problem:
        raise MetadataError(
            f"{source}: the schema that Petastorm pickled cannot be read: {problem}. Write the schema again with "
            "`petastore generate-metadata --unischema-class MODULE.NAME`"
        ) from None
    document = {"format": DOCUMENT_KEY, "version": DOCUMENT_VERSION, "name": name, "fields": fields}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


class _NoSchemaError(ValueError):
    """The pickle is not a schema of Petastorm; the message has the broken rule."""


def _schema(value: Any, stored: pa.Schema) -> tuple[str, list[dict[str, Any]]]:
    state = _object(value, "Unischema", "the schema")
    listed = state.get("_fields")
    if isinstance(listed, Record) and listed.made_by.kind == "OrderedDict":
        pairs = _pairs(listed)
    elif isinstance(listed, dict):
        pairs = list(listed.items())
    else:
        raise _NoSchemaError(f"the schema's fields must be a dict or an OrderedDict, got {described(listed)}")
    fields: dict[str, dict[str, Any]] = {}
    for key, value in pairs:
        field = _field(value, stored)
        if not isinstance(key, str) or _text(key, "a field's name") != field["name"]:
            raise _NoSchemaError(f"the key of each field must be its name, got another key for {field['name']!r}")
        if field["name"] in fields:
            raise _NoSchemaError(f"fields must have distinct names, got {field['name']!r} twice")
        fields[field["name"]] = field
    return _text(state.get("_name"), "the schema's name"), list(fields.values())


def _pairs(ordered: Record) -> list[tuple[Any, Any]]:
    """Return the (key, value) pairs of a pickled OrderedDict.

    Python 2 pickles the pairs as an argument of the constructor, Python 3 as items.
    """
    if not ordered.arguments:
        return list(ordered.items.items())
    given = ordered.arguments[0]
    if len(ordered.arguments) != 1 or not isinstance(given, list) or ordered.items:
        raise _NoSchemaError(f"the schema's fields must be one list of pairs, got {described(given)}")
    for pair in given:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _NoSchemaError("each of the schema's fields must be a pair of name and field, got something else")
    return [(key, value) for key, value in given]


def _field(value: Any, stored: pa.Schema) -> dict[str, Any]:
    parts = _field_parts(value)
    name = _text(parts["name"], "a field's name")
    try:
        shape = parts["shape"]
        if isinstance(shape, tuple) and len(shape) > _MAX_DIMENSIONS:
            raise _NoSchemaError(f"shape must have at most {_MAX_DIMENSIONS} dimensions, got {len(shape):,}")
        if not isinstance(shape, tuple) or not all(size is None or type(size) is int for size in shape):
            sizes = f"({', '.join(map(described, shape))})" if isinstance(shape, tuple) else described(shape)
            raise _NoSchemaError(f"shape must be a tuple of ints and None, got {sizes}")
        if not isinstance(parts["nullable"], bool):
            raise _NoSchemaError(f"nullable must be a bool, got {described(parts['nullable'])}")
        dtype = _dtype(parts["numpy_dtype"])
        codec = _natural_codec(name, dtype, shape, stored) if parts["codec"] is None else _codec(parts["codec"], shape)
    except _NoSchemaError as problem:
        raise _NoSchemaError(f"in field {name!r}, {problem}") from None
    return {"name": name, "dtype": dtype, "shape": list(shape), "nullable": parts["nullable"], "codec": codec}


def _field_parts(value: Any) -> dict[str, Any]:
    """Return a dict of a field's attributes, from any of its three pickled forms.

    The keys are `_FIELD_PARTS`. If the codec is missing, it is None; if the nullability is missing, it is False.
    """
    kind, arguments = (value.made_by.kind, value.arguments) if isinstance(value, Record) else ("", ())
    names: Any = _FIELD_PARTS
    if kind == "restore" and len(arguments) == 3 and arguments[0] == "UnischemaField":
        _, names, arguments = arguments
    elif kind == "reconstructor":
        arguments = _reconstructed(value, "UnischemaField", "tuple")
    elif kind != "UnischemaField":
        raise _NoSchemaError(f"each field must be a UnischemaField, got {described(value)}")
    if not isinstance(names, tuple) or not isinstance(arguments, tuple) or len(names) != len(arguments):
        raise _NoSchemaError("a pickled UnischemaField must have one value for each attribute name, got more or fewer")
    if not all(isinstance(name, str) and name in _FIELD_PARTS for name in names):
        raise _NoSchemaError(f"a UnischemaField must have only the attributes {', '.join(_FIELD_PARTS)}, got others")
    parts = {"codec": None, "nullable": False} | dict(zip(names, arguments, strict=True))
    missing = [name for name in _FIELD_PARTS if name not in parts]
    if missing:
        raise _NoSchemaError(f"a UnischemaField must have the attribute {missing[0]}, got a field without it")
    return parts


def _natural_codec(name: str, dtype: str, shape: tuple[Any, ...], stored: pa.Schema) -> dict[str, Any] | None:
    """Return the codec (JSON) of a field that was pickled without one.

    Return None for petastore's default codec. Petastorm stored scalar bytes as text, and decimals with a precision that
    only the stored column has.
    """
    arrow_type = stored.field(name).type if stored.names.count(name) == 1 else None
    if shape or dtype not in ("bytes", "decimal"):
        return None
    if dtype == "bytes" and (arrow_type is None or pa.types.is_string(arrow_type)):
        return {"id": "scalar", "spark_type": "string"}
    if dtype == "decimal" and arrow_type is not None and pa.types.is_decimal(arrow_type):
        return {"id": "scalar", "spark_type": f"decimal({arrow_type.precision},{arrow_type.scale})"}
    return None


def _codec(value: Any, shape: tuple[Any, ...]) -> dict[str, Any] | None:
    kind = _kind_of_object(value)
    if kind not in _CODECS:
        raise _NoSchemaError(f"the codec must be one of {', '.join(_CODECS)}, got {described(value)}")
    state = _object(value, kind, "the codec")
    if kind == "NdarrayCodec":
        return {"id": "ndarray"}
    if kind == "CompressedNdarrayCodec":
        return {"id": "compressed_ndarray"}
    if kind == "CompressedImageCodec":
        return _image_codec(state)
    spark_type = _spark_type(state.get("_spark_type"))
    if spark_type is None and not shape:
        raise _NoSchemaError("the codec must store scalars, because the shape is (), got one that stores arrays")
    return None if spark_type is None else {"id": "scalar", "spark_type": spark_type}


def _image_codec(state: Mapping[str, Any]) -> dict[str, Any]:
    stored_format = _text(state.get("_image_codec", state.get("_format")), "the image format")
    quality = state.get("_quality", 80)
    if type(quality) is not int:
        raise _NoSchemaError(f"the image quality must be an int, got {described(quality)}")
    # Releases 0.2.1 to 0.2.3, recognized by the dot, wrote with OpenCV without swapping the color channels.
    reversed_channels = "_image_codec" not in state and stored_format.startswith(".")
    codec_id = "reversed_image" if reversed_channels else "compressed_image"
    return {"id": codec_id, "image_codec": stored_format.lower(), "quality": min(max(quality, 1), 100)}


def _spark_type(value: Any) -> str | None:
    """Return the SQL name of a pickled Spark type, as `"bigint"`; None for an array."""
    kind = value.kind if isinstance(value, Name) else _kind_of_object(value)
    name = kind.removeprefix("Spark ")
    if not kind.startswith("Spark "):
        raise _NoSchemaError(f"the codec must have a type of pyspark.sql.types, got {described(value)}")
    if name in _SPARK_TYPES:
        return _SPARK_TYPES[name]
    state = {} if isinstance(value, Name) else _object(value, kind, "the codec's Spark type")
    if name == "DecimalType":
        return f"decimal({_number(state, 'precision', 10)},{_number(state, 'scale', 0)})"
    if name == "ArrayType":
        return None
    return f"{name.removesuffix('Type').lower()}({_number(state, 'length', 0)})"


def _number(state: Mapping[str, Any], key: str, default: int) -> int:
    number = state.get(key, default)
    if type(number) is not int or not 0 <= number < 2**31:
        found = "an int out of this range" if type(number) is int else described(number)
        raise _NoSchemaError(f"the {key} of the codec's Spark type must be an int from 0 to {2**31 - 1:,}, got {found}")
    return number


def _dtype(value: Any) -> str:
    """Return the name that schema documents use for a pickled dtype, as `"int32"`."""
    if isinstance(value, Name) and value.kind.startswith("dtype "):
        return value.kind.removeprefix("dtype ")
    if isinstance(value, Record) and value.made_by.kind == "dtype" and value.arguments:
        text = _dtype_text(value.arguments[0])
        if text is not None:
            return text + (_unit(value.state) if text.endswith("64") and text[0] in "dt" else "")
    raise _NoSchemaError(f"numpy_dtype must be a dtype of NumPy or Decimal, got {described(value)}")


def _dtype_text(text: Any) -> str | None:
    """Convert a dtype text that NumPy pickles (`"i4"`) to a dtype name (`"int32"`).

    Return None if the text is not a known dtype.
    """
    matched = _DTYPE_TEXT.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        return None
    kind, size, letter, time = matched.groups()
    if kind is None:
        return _DTYPE_LETTERS[letter or time]
    return "bool" if kind == "b" else f"{_DTYPE_KINDS[kind]}{int(size) * 8}"


def _unit(states: list[Any]) -> str:
    """Return the time unit in the pickled state of a dtype, such as `"[us]"`.

    Return `""` if the state has no unit.
    """
    state = states[0] if states and isinstance(states[0], tuple) else ()
    inner = state[-1] if state and isinstance(state[-1], tuple) and len(state[-1]) == 2 else ((), ())
    unit = inner[1][0] if isinstance(inner[1], tuple) and inner[1] else b""
    if isinstance(unit, Record) and unit.made_by.kind == "bytes" and unit.arguments:
        unit = unit.arguments[0]
    if not isinstance(unit, (bytes, str)) or len(unit) > 2:
        return ""
    text = unit.decode("latin-1") if isinstance(unit, bytes) else unit
    return f"[{text}]" if re.fullmatch("[a-zA-Z]{1,2}", text) else ""


def _object(value: Any, kind: str, what: str) -> dict[str, Any]:
    """Return the attributes of a pickled object, as a dict.

    The object may have any of the forms that pickle protocols use.

    Args:
        value: Parsed value of the pickle.
        kind: Class that the object must have.
        what: Name of the object, for messages.

    Raises:
        _NoSchemaError: The value is not an object of this class, or its attributes are not a dict.
    """
    if not isinstance(value, Record) or _kind_of_object(value) != kind:
        raise _NoSchemaError(f"{what} must be a {kind.removeprefix('Spark ')}, got {described(value)}")
    state = value.state[0] if value.state else {}
    if not isinstance(state, dict):
        raise _NoSchemaError(f"the attributes of {what} must be a dict, got {described(state)}")
    return state


def _kind_of_object(value: Any) -> str:
    if isinstance(value, Record) and value.made_by.kind == "reconstructor":
        first = value.arguments[0] if value.arguments else None
        kind = first.kind if isinstance(first, Name) else ""
        _reconstructed(value, kind, "object")
        return kind
    return value.made_by.kind if isinstance(value, Record) and not value.arguments else ""


def _reconstructed(value: Record, kind: str, base: str) -> Any:
    """Return the `state` of a pickled call `_reconstructor(class, base, state)`.

    Raise an error if the call has another class, another base class, or other arguments.
    """
    made = value.arguments
    named = [part.kind for part in made[:2] if isinstance(part, Name)]
    if len(made) != 3 or named != [kind, base] or (base == "object" and made[2] is not None):
        raise _NoSchemaError(
            "copyreg._reconstructor must be called with a class of Petastorm, its base class and its state, got other "
            "arguments"
        )
    return made[2]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _NoSchemaError(f"{what} must be text, got {described(value)}")
    if len(value) > _MAX_NAME:
        raise _NoSchemaError(f"{what} must have at most {_MAX_NAME} characters, got {len(value):,}")
    return value.text if isinstance(value, OldText) else value
