"""Write a schema as the pickle that Petastorm stores, without Petastorm.

This module does not use the `pickle` module: it writes the pickle's opcodes itself, in protocol 2, which every Python
version reads. `petastore.storage.metadata.petastorm_schema` reads such pickles.
"""

from __future__ import annotations

import keyword
import struct
from decimal import Decimal
from typing import Any

import numpy as np

from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec, ScalarCodec
from petastore.errors import SchemaError
from petastore.schema import Unischema, UnischemaField

__all__ = ["petastorm_pickle"]

_SPARK_TYPES = {
    "tinyint": "ByteType", "smallint": "ShortType", "int": "IntegerType", "bigint": "LongType", "float": "FloatType",
    "double": "DoubleType", "boolean": "BooleanType", "string": "StringType", "binary": "BinaryType",
    "date": "DateType", "timestamp": "TimestampType", "timestamp_ntz": "TimestampNTZType",
}  # fmt: skip
# Names that NumPy 1 and NumPy 2 both have.
_DTYPES = {
    "bool": "bool_", "str": "str_", "bytes": "bytes_",
    **{name: name for name in (
        "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
        "complex64", "complex128", "datetime64", "timedelta64",
    )},
}  # fmt: skip
_ARRAYS = (NdarrayCodec, CompressedNdarrayCodec)
# Attributes of Petastorm's Unischema, which a field of the same name must not hide.
_TAKEN = frozenset({
    "fields", "create_schema_view", "as_spark_schema", "make_namedtuple", "make_namedtuple_tf", "from_arrow_schema",
})  # fmt: skip


def petastorm_pickle(schema: Unischema) -> bytes:
    """Return the pickle of a schema, for the key `dataset-toolkit.unischema.v1`.

    Args:
        schema: Schema of the rows.

    Raises:
        SchemaError: Petastorm cannot read such rows; the message names the field and the reason.

    Example:
        >>> import pyarrow as pa
        >>> from petastore.storage.metadata.petastorm_schema import petastorm_document
        >>> pickled = petastorm_pickle(Unischema("user", [UnischemaField("id", "int64")]))
        >>> petastorm_document(pickled, pa.schema([]), source="here")[:64]
        '{"format":"petastore.unischema","version":1,"name":"user","field'
    """
    if not _is_identifier(schema.name):
        raise SchemaError(
            f"schema name must be a Python identifier for Petastorm, got {schema.name!r}. "
            "petastore.writers.generate.generate_metadata gives the dataset a schema of another name"
        )
    for field in schema:
        reason = _unreadable(field)
        if reason:
            raise SchemaError(f"Petastorm cannot read the field {field.name!r} of schema {schema.name!r}: {reason}")
    return _Opcodes().schema(schema)


def _is_identifier(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _unreadable(field: UnischemaField) -> str | None:
    """Return the reason why Petastorm cannot read a field; None if Petastorm can read it."""
    codec, kind = field.codec, field.dtype.kind
    if not _is_identifier(field.name) or field.name.startswith("_"):
        return "rows of Petastorm are named tuples, which cannot have a field of this name"
    if codec is not None and type(codec) not in (*_ARRAYS, ScalarCodec, CompressedImageCodec):
        return f"Petastorm lacks the codec {codec!r}"
    if field.numpy_dtype is not Decimal and _dtype_name(field) not in _DTYPES:
        return f"Petastorm cannot return values of dtype {field.dtype_name}"
    if type(codec) in (*_ARRAYS, CompressedImageCodec):
        return None
    if kind == "M" and field.nullable and np.datetime_data(field.dtype)[0] != "D":
        return "Petastorm fails at the first null among timestamps; declare the field without nullable=True"
    if kind == "M" and np.datetime_data(field.dtype)[0] in ("ns", "ps", "fs", "as"):
        return f"Petastorm keeps only the microseconds of {field.dtype_name}"
    if kind in "cm":
        return f"Petastorm reads {field.dtype_name} only in arrays; declare the field with NdarrayCodec()"
    if field.shape and (len(field.shape) > 1 or kind in "OM"):
        return (
            f"without a codec, Petastorm reads only lists of numbers, got {field.dtype_name} of shape {field.shape}; "
            "for other arrays of numbers or times, declare the field with NdarrayCodec()"
        )
    return None


def _dtype_name(field: UnischemaField) -> str:
    return field.dtype_name.partition("[")[0]


class _Opcodes:
    """Writer of pickle opcodes of protocol 2."""

    def __init__(self) -> None:
        self._out = bytearray(b"\x80\x02")
        self._kept = 0

    def schema(self, schema: Unischema) -> bytes:
        """Write a `Unischema`: name, fields in order, and an attribute for each field.

        Return the complete pickle.
        """
        self._object("petastorm.unischema", "Unischema")
        self._out += b"}("
        self._text("_name")
        self._text(schema.name)
        self._text("_fields")
        self._global("collections", "OrderedDict")
        self._out += b")R("
        places = {}
        for field in schema:
            self._text(field.name)
            self._field(field)
            places[field.name] = self._keep()
        self._out += b"u"
        for name, place in places.items():
            if name not in _TAKEN:
                self._text(name)
                self._out += b"j" + struct.pack("<I", place)
        self._out += b"ub."
        return bytes(self._out)

    def _field(self, field: UnischemaField) -> None:
        self._global("petastorm.unischema", "UnischemaField")
        self._out += b"("
        self._text(field.name)
        self._dtype(field)
        self._out += b"("
        for size in field.shape:
            self._integer_or_none(size)
        self._out += b"t"
        self._codec(field.codec)
        self._out += b"\x88" if field.nullable else b"\x89"
        self._out += b"t\x81"

    def _dtype(self, field: UnischemaField) -> None:
        if field.numpy_dtype is Decimal:
            self._global("decimal", "Decimal")
        else:
            self._global("numpy", _DTYPES[_dtype_name(field)])

    def _codec(self, codec: Any) -> None:
        if codec is None:
            self._out += b"N"
            return
        self._object("petastorm.codecs", type(codec).__name__)
        if isinstance(codec, CompressedImageCodec):
            self._out += b"}("
            self._text("_image_codec")
            self._text(f".{codec.image_codec}")
            self._text("_quality")
            self._integer_or_none(codec.quality)
            self._out += b"ub"
        elif isinstance(codec, ScalarCodec):
            self._out += b"}"
            self._text("_spark_type")
            self._spark_type(codec.spark_type)
            self._out += b"sb"

    def _spark_type(self, name: str) -> None:
        kind, _, given = name.partition("(")
        numbers = [int(number) for number in given.removesuffix(")").split(",") if number]
        if kind == "decimal":
            self._object("pyspark.sql.types", "DecimalType")
            self._out += b"}("
            for key, number in zip(("precision", "scale"), numbers, strict=True):
                self._text(key)
                self._integer_or_none(number)
            self._text("hasPrecisionInfo")
            self._out += b"\x88ub"
        elif numbers:
            self._object("pyspark.sql.types", f"{kind.capitalize()}Type")
            self._out += b"}"
            self._text("length")
            self._integer_or_none(numbers[0])
            self._out += b"sb"
        else:
            self._object("pyspark.sql.types", _SPARK_TYPES[name])

    def _object(self, module: str, name: str) -> None:
        """Write the opcodes that create an object of a class, without arguments."""
        self._global(module, name)
        self._out += b")\x81"

    def _global(self, module: str, name: str) -> None:
        self._out += f"c{module}\n{name}\n".encode("ascii")

    def _text(self, text: str) -> None:
        encoded = text.encode()
        self._out += b"X" + struct.pack("<I", len(encoded)) + encoded

    def _integer_or_none(self, number: int | None) -> None:
        if number is None:
            self._out += b"N"
        elif number < 2**31:
            self._out += b"J" + struct.pack("<i", number)
        else:
            self._out += b"\x8a\x09" + number.to_bytes(9, "little")

    def _keep(self) -> int:
        self._out += b"r" + struct.pack("<I", self._kept)
        self._kept += 1
        return self._kept - 1
