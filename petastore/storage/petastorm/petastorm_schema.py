"""The schema that Petastorm pickled into `_common_metadata`, as a schema document of ours. Pure.

All releases pickle a `Unischema`, in one of three spellings of its fields (a class of its own, a class of its own
rebuilt as a tuple, or PySpark's way with named tuples), by protocols 0 to 5, under the names of Python 2 or 3, from the
package `petastorm` or from one of those that it came from. `NAMES` is every name that may occur in any of them. What
comes out is JSON, to be parsed and checked like any document; codecs are told by their ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from petastore.errors import MetadataError
from petastore.schema.document import DOCUMENT_KEY, DOCUMENT_VERSION
from petastore.storage.petastorm.pickled import Name, OldText, Record, read_pickle

__all__ = ["NAMES", "PETASTORM_SCHEMA_KEY", "petastorm_document"]

PETASTORM_SCHEMA_KEY = b"dataset-toolkit.unischema.v1"
"""Key of the pickled schema in the key-value metadata of `_common_metadata`."""

_PACKAGES = ("petastorm", "dataset_toolkit", "av.ml.dataset_toolkit", "av.experimental.deepdrive.dataset_toolkit")
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
# Parts may be shared by many fields, so that what is taken of one is bounded, whatever its length.
_MAX_DIMENSIONS = 64
_MAX_NAME = 500
_FIELD_PARTS = ("name", "numpy_dtype", "shape", "codec", "nullable")
_DTYPE_TEXT = re.compile(r"[|<>=]?([biufc])([0-9]{1,2})|[|<>=]?([SUO])[0-9]{0,9}|[|<>=]?([mM])8")
_DTYPE_KINDS = {"i": "int", "u": "uint", "f": "float", "c": "complex"}
_DTYPE_LETTERS = {"S": "bytes", "U": "str", "O": "object", "M": "datetime64", "m": "timedelta64"}


def _names() -> dict[tuple[str, str], str]:
    names = {("collections", "OrderedDict"): "OrderedDict", ("pyspark.serializers", "_restore"): "restore"}
    names |= {(package + ".unischema", name): name for package in _PACKAGES for name in ("Unischema", "UnischemaField")}
    names |= {(package + ".codecs", name): name for package in _PACKAGES for name in _CODECS}
    names |= {(module, "_reconstructor"): "reconstructor" for module in _COPYREG}
    names |= {(module, name): name for module in _BUILTINS for name in ("object", "tuple")}
    names |= {(module, name): f"dtype {dtype}" for module in _BUILTINS for name, dtype in _PYTHON_DTYPES.items()}
    names |= {("numpy", name): f"dtype {dtype}" for name, dtype in _NUMPY_DTYPES.items()}
    names |= {("numpy", "dtype"): "dtype", ("decimal", "Decimal"): "dtype decimal"}
    # How Python 3 pickles bytes by protocols 0 to 2: as text to be encoded.
    names |= {("_codecs", "encode"): "bytes"}
    types = (*_SPARK_TYPES, *_OTHER_SPARK_TYPES)
    return names | {("pyspark.sql.types", name): f"Spark {name}" for name in types}


NAMES: Mapping[tuple[str, str], str] = _names()
"""Every (module, name) that a pickled schema may use, and what it means."""


def petastorm_document(pickled: bytes, stored: pa.Schema, *, source: str) -> str:
    r"""The schema document that says what a pickled schema says.

    Args:
        pickled: The value of `PETASTORM_SCHEMA_KEY`, from anywhere: it is not trusted.
        stored: The Arrow schema of the columns; tells the digits of decimals that the pickle leaves open.
        source: Where it came from, for messages.

    Raises:
        MetadataError: It is damaged, too large, no schema, or names something that Petastorm's own schemas do not.

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
        raise MetadataError(f"{source}: the schema that Petastorm pickled cannot be read: {problem}") from None
    document = {"format": DOCUMENT_KEY, "version": DOCUMENT_VERSION, "name": name, "fields": fields}
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


class _NoSchemaError(ValueError):
    """The values of the pickle are no schema; the message says what they are instead."""


def _schema(value: Any, stored: pa.Schema) -> tuple[str, list[dict[str, Any]]]:
    state = _object(value, "Unischema", "a schema is")
    listed = state.get("_fields")
    if isinstance(listed, Record) and listed.made_by.kind == "OrderedDict":
        pairs = _pairs(listed)
    elif isinstance(listed, dict):
        pairs = list(listed.items())
    else:
        raise _NoSchemaError(f"its fields are {_told(listed)}")
    fields: dict[str, dict[str, Any]] = {}
    for key, value in pairs:
        field = _field(value, stored)
        if not isinstance(key, str) or _text(key, "a field's name") != field["name"]:
            raise _NoSchemaError(f"it lists the field {field['name']!r} under another name")
        if field["name"] in fields:
            raise _NoSchemaError(f"it has two fields {field['name']!r}")
        fields[field["name"]] = field
    return _text(state.get("_name"), "its name"), list(fields.values())


def _pairs(ordered: Record) -> list[tuple[Any, Any]]:
    """Keys and values of an OrderedDict: given as a list of lists by Python 2, put in one by one by Python 3."""
    if not ordered.arguments:
        return list(ordered.items.items())
    given = ordered.arguments[0]
    if len(ordered.arguments) != 1 or not isinstance(given, list) or ordered.items:
        raise _NoSchemaError("its fields are no list of pairs")
    for pair in given:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise _NoSchemaError("its fields are no list of pairs")
    return [(key, value) for key, value in given]


def _field(value: Any, stored: pa.Schema) -> dict[str, Any]:
    parts = _field_parts(value)
    name = _text(parts["name"], "a field's name")
    try:
        shape = parts["shape"]
        if isinstance(shape, tuple) and len(shape) > _MAX_DIMENSIONS:
            raise _NoSchemaError(f"its shape has {len(shape):,} dimensions; arrays have at most {_MAX_DIMENSIONS}")
        if not isinstance(shape, tuple) or not all(size is None or type(size) is int for size in shape):
            raise _NoSchemaError(f"its shape is {_told(shape)} of other things than sizes and None")
        if not isinstance(parts["nullable"], bool):
            raise _NoSchemaError(f"whether it is nullable is {_told(parts['nullable'])}")
        dtype = _dtype(parts["numpy_dtype"])
        codec = _natural_codec(name, dtype, shape, stored) if parts["codec"] is None else _codec(parts["codec"], shape)
    except _NoSchemaError as problem:
        raise _NoSchemaError(f"of the field {name!r}, {problem}") from None
    return {"name": name, "dtype": dtype, "shape": list(shape), "nullable": parts["nullable"], "codec": codec}


def _field_parts(value: Any) -> dict[str, Any]:
    """Name, dtype, shape, codec and nullability of a field, in whichever of the three ways it was pickled."""
    kind, arguments = (value.made_by.kind, value.arguments) if isinstance(value, Record) else ("", ())
    names: Any = _FIELD_PARTS
    if kind == "restore" and len(arguments) == 3 and arguments[0] == "UnischemaField":
        _, names, arguments = arguments
    elif kind == "reconstructor":
        arguments = _reconstructed(value, "UnischemaField", "tuple")
    elif kind != "UnischemaField":
        raise _NoSchemaError(f"one of its fields is {_told(value)}")
    if not isinstance(names, tuple) or not isinstance(arguments, tuple) or len(names) != len(arguments):
        raise _NoSchemaError(f"one of its fields has {_told(arguments)} for its parts")
    if not all(isinstance(name, str) and name in _FIELD_PARTS for name in names):
        raise _NoSchemaError("one of its fields has parts that no field has")
    parts = {"codec": None, "nullable": False} | dict(zip(names, arguments, strict=True))
    missing = [name for name in _FIELD_PARTS if name not in parts]
    if missing:
        raise _NoSchemaError(f"one of its fields lacks its {missing[0]}")
    return parts


def _natural_codec(name: str, dtype: str, shape: tuple[Any, ...], stored: pa.Schema) -> dict[str, Any] | None:
    """The codec that says how Petastorm stores a field without one, where that differs from ours."""
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
        raise _NoSchemaError(f"the codec is {_told(value)}")
    state = _object(value, kind, "the codec is")
    if kind == "NdarrayCodec":
        return {"id": "ndarray"}
    if kind == "CompressedNdarrayCodec":
        return {"id": "compressed_ndarray"}
    if kind == "CompressedImageCodec":
        return _image_codec(state)
    spark_type = _spark_type(state.get("_spark_type"))
    if spark_type is None and not shape:
        raise _NoSchemaError("the codec stores an array, but the field is a scalar")
    return None if spark_type is None else {"id": "scalar", "spark_type": spark_type}


def _image_codec(state: Mapping[str, Any]) -> dict[str, Any]:
    stored_format = _text(state.get("_image_codec", state.get("_format")), "the image format")
    quality = state.get("_quality", 80)
    if type(quality) is not int:
        raise _NoSchemaError(f"the image quality is {_told(quality)}")
    # Releases 0.2.1 to 0.2.3 wrote through OpenCV, told by the dot, and did not turn the channels round for it.
    reversed_channels = "_image_codec" not in state and stored_format.startswith(".")
    codec_id = "reversed_image" if reversed_channels else "compressed_image"
    return {"id": codec_id, "image_codec": stored_format.lower(), "quality": min(max(quality, 1), 100)}


def _spark_type(value: Any) -> str | None:
    """Simple name of a scalar Spark type; None for an array."""
    kind = value.kind if isinstance(value, Name) else _kind_of_object(value)
    name = kind.removeprefix("Spark ")
    if not kind.startswith("Spark "):
        raise _NoSchemaError(f"the codec's Spark type is {_told(value)}")
    if name in _SPARK_TYPES:
        return _SPARK_TYPES[name]
    state = {} if isinstance(value, Name) else _object(value, kind, "the codec's Spark type is")
    if name == "DecimalType":
        return f"decimal({_number(state, 'precision', 10)},{_number(state, 'scale', 0)})"
    if name == "ArrayType":
        return None
    return f"{name.removesuffix('Type').lower()}({_number(state, 'length', 0)})"


def _number(state: Mapping[str, Any], key: str, default: int) -> int:
    number = state.get(key, default)
    if type(number) is not int or not 0 <= number < 2**31:
        raise _NoSchemaError(f"the {key} of the codec's Spark type is {_told(number)}")
    return number


def _dtype(value: Any) -> str:
    """Name of a dtype, as a schema document spells it."""
    if isinstance(value, Name) and value.kind.startswith("dtype "):
        return value.kind.removeprefix("dtype ")
    if isinstance(value, Record) and value.made_by.kind == "dtype" and value.arguments:
        text = _dtype_text(value.arguments[0])
        if text is not None:
            return text + (_unit(value.state) if text.endswith("64") and text[0] in "dt" else "")
    raise _NoSchemaError(f"the dtype is {_told(value)}")


def _dtype_text(text: Any) -> str | None:
    """The dtype that NumPy pickles under a text such as `"i4"`; None where it is none of them."""
    matched = _DTYPE_TEXT.fullmatch(text) if isinstance(text, str) else None
    if matched is None:
        return None
    kind, size, letter, time = matched.groups()
    if kind is None:
        return _DTYPE_LETTERS[letter or time]
    return "bool" if kind == "b" else f"{_DTYPE_KINDS[kind]}{int(size) * 8}"


def _unit(states: list[Any]) -> str:
    """`"[us]"` of a dtype of times, as NumPy keeps it in the last part of the state; nothing where there is none."""
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
    """The attributes of an object of that kind, in whichever way it was pickled."""
    if not isinstance(value, Record) or _kind_of_object(value) != kind:
        raise _NoSchemaError(f"{what} {_told(value)}")
    state = value.state[0] if value.state else {}
    if not isinstance(state, dict):
        raise _NoSchemaError(f"{what} an object whose state is {_told(state)}")
    return state


def _kind_of_object(value: Any) -> str:
    if isinstance(value, Record) and value.made_by.kind == "reconstructor":
        first = value.arguments[0] if value.arguments else None
        kind = first.kind if isinstance(first, Name) else ""
        _reconstructed(value, kind, "object")
        return kind
    return value.made_by.kind if isinstance(value, Record) and not value.arguments else ""


def _reconstructed(value: Record, kind: str, base: str) -> Any:
    """The state of the base class that `_reconstructor(class, base, state)` is called with."""
    made = value.arguments
    named = [part.kind for part in made[:2] if isinstance(part, Name)]
    if len(made) != 3 or named != [kind, base] or (base == "object" and made[2] is not None):
        raise _NoSchemaError("one of its parts is rebuilt in a way that Petastorm does not use")
    return made[2]


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise _NoSchemaError(f"{what} is {_told(value)}")
    if len(value) > _MAX_NAME:
        raise _NoSchemaError(f"{what} is a text of {len(value):,} characters; at most {_MAX_NAME} are read")
    return value.text if isinstance(value, OldText) else value


def _told(value: Any) -> str:
    """A value for a message; never whole, since parts that are shared would be printed again and again."""
    if isinstance(value, Name):
        return f"the name {value.spelled!r}"
    if isinstance(value, Record):
        first = value.arguments[0] if value.arguments else None
        called = first if value.made_by.kind == "reconstructor" and isinstance(first, Name) else value.made_by
        return f"what {called.spelled!r} makes"
    return "None" if value is None else f"a {type(value).__name__}"
