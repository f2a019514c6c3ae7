"""Hive partitions: `day=2026-01-01/part-0.parquet` → a column `day`. Pure.

Every directory of the form `key=value` below the root is a partition column. Values are percent-decoded;
`__HIVE_DEFAULT_PARTITION__` is null. A column is `int64` where each of its values is an integer in its one canonical
spelling (`7`, not `07` or `+7`) that fits, and text otherwise, so the text of a value is never lost.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any
from urllib.parse import unquote

import numpy as np

from petastore.errors import SchemaError
from petastore.inventory import DataFile
from petastore.schema import UnischemaField

__all__ = ["parse_partitions", "partition_fields", "partition_value"]

_NULL = "__HIVE_DEFAULT_PARTITION__"
_CANONICAL_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64 = np.iinfo(np.int64)


def parse_partitions(path: str) -> tuple[tuple[str, str | None], ...]:
    """Partition keys and values of a file's path relative to the root, outermost first.

    Raises:
        SchemaError: A key occurs twice.

    Example:
        >>> parse_partitions("city=S%C3%A3o Paulo/day=__HIVE_DEFAULT_PARTITION__/part-0.parquet")
        (('city', 'São Paulo'), ('day', None))
    """
    values: dict[str, str | None] = {}
    for directory in path.split("/")[:-1]:
        key, equals, value = directory.partition("=")
        key = _decoded(key)
        if not equals or not key:
            continue
        if key in values:
            raise SchemaError(
                f"{path}: the partition key {key!r} occurs twice in the path; give each level its own key"
            )
        values[key] = None if value == _NULL else _decoded(value)
    return tuple(values.items())


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def partition_fields(files: Sequence[DataFile]) -> tuple[UnischemaField, ...]:
    """The partition columns of a dataset, outermost first; nullable where some file's value is null.

    Raises:
        SchemaError: Files lie under different partition keys.

    Example:
        >>> files = [DataFile("n=1/a.parquet", 9, partitions=(("n", "1"),))]
        >>> partition_fields(files)
        (UnischemaField('n', int64),)
    """
    if not files:
        return ()
    keys = tuple(key for key, _ in files[0].partitions)
    for file in files:
        here = tuple(key for key, _ in file.partitions)
        if here != keys:
            raise SchemaError(
                f"{files[0].path} lies under the partition keys {list(keys)}, but {file.path} under {list(here)}; "
                "all files of a dataset need the same keys in the same order"
            )
    return tuple(_field(key, {file.partitions[level][1] for file in files}) for level, key in enumerate(keys))


def _field(name: str, values: set[str | None]) -> UnischemaField:
    present = values - {None}
    integers = bool(present) and all(value is not None and _is_integer(value) for value in present)
    return UnischemaField(name, np.int64 if integers else np.str_, nullable=None in values)


def _is_integer(text: str) -> bool:
    return _CANONICAL_INTEGER.fullmatch(text) is not None and _INT64.min <= int(text) <= _INT64.max


def partition_value(text: str | None, field: UnischemaField) -> Any:
    """The value of a partition column for all rows of a file.

    Args:
        text: The decoded value, as in `DataFile.partitions`; None is null.
        field: The column, from `partition_fields` or as the dataset's schema declares it.

    Returns:
        A NumPy scalar of the field's dtype, `str`, `bytes` or `Decimal`; None for null.

    Raises:
        SchemaError: The field cannot have that value.

    Example:
        >>> partition_value("7", UnischemaField("n", "int64")), partition_value(None, UnischemaField("n", "int64"))
        (np.int64(7), None)
        >>> partition_value("2026-01-31", UnischemaField("day", "datetime64[D]"))
        np.datetime64('2026-01-31')
    """
    if text is None:
        return None
    try:
        return _converted(text, field)
    except (ValueError, OverflowError, InvalidOperation, KeyError) as problem:
        raise SchemaError(
            f"the partition {field.name}={text} is no {field.dtype_name}, which the schema declares for {field.name!r}"
            f" ({problem}); correct the schema or the directory's name"
        ) from None


def _converted(text: str, field: UnischemaField) -> Any:
    if field.shape:
        raise ValueError(f"a partition holds one value, not the shape {field.shape}")
    if field.numpy_dtype in (np.str_, np.object_):
        return text
    if field.numpy_dtype is np.bytes_:
        return text.encode()
    if field.numpy_dtype is Decimal:
        return Decimal(text)
    if field.dtype.kind == "b":
        return np.bool_({"true": True, "false": False}[text.lower()])
    if field.dtype.kind in "iu":
        return _integer(text, field.dtype)
    if field.dtype.kind == "M":
        return np.array([text.replace(" ", "T")], dtype=field.dtype)[0]
    return field.dtype.type(text)


def _integer(text: str, dtype: np.dtype[Any]) -> Any:
    bounds = np.iinfo(dtype)
    number = int(text)
    if not bounds.min <= number <= bounds.max:
        raise OverflowError(f"it does not fit {bounds.min}…{bounds.max}")
    return dtype.type(number)
