"""Partition keys that the files store, too: a column `day` in files under `day=1/`. The two have to say the same.

The values that are given are those of the files, in their type. Each cell that is read is held against the name of the
directory, by value: `day=01` agrees with the integer 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow.memory import flags_of, only_chunk
from petastore.codecs.registry import codec_of
from petastore.errors import DecodeError, SchemaError
from petastore.inventory import DataFile
from petastore.schema.field import UnischemaField
from petastore.storage.files.partitions import partition_value

__all__ = ["StoredKey", "held_against_directory"]


@dataclasses.dataclass(frozen=True, slots=True)
class StoredKey:
    """A partition key that the files store, too.

    Example:
        >>> day = StoredKey(UnischemaField("day", "int32"))
        >>> day.first_contradiction(pa.array([1, 1, 2]), "01"), day.first_contradiction(pa.array([1, 1]), "1")
        (2, None)
    """

    field: UnischemaField
    """What the schema says of the stored column."""

    def first_contradiction(self, cells: pa.Array, text: str | None) -> int | None:
        """The first row whose cell is not what the directory says; None where all are.

        Args:
            cells: The stored cells.
            text: What stands in the name of the directory, decoded; None is null.

        Raises:
            DecodeError: A cell is not what the field declares; `row` is set.
        """
        missing = flags_of(cells.is_null())
        if text is None:
            return _first(~missing)
        try:
            value = partition_value(text, self.field)
        except SchemaError:
            return 0 if len(cells) else None  # nothing that the column can hold
        return _first(missing | ~self._equal(cells, value))

    def _equal(self, cells: pa.Array, value: Any) -> NDArray[np.bool_]:
        """Where a cell has this value; anything where it is missing."""
        same = np.zeros(len(cells), np.bool_)
        if isinstance(cells, pa.DictionaryArray):
            cells = cells.dictionary_decode()
        there = flags_of(cells.is_valid())
        if isinstance(value, (str, bytes)) and _is_text(cells.type):
            wanted = value.encode() if isinstance(value, str) else value
            equal = pc.equal(cells.cast(pa.large_binary()), pa.scalar(wanted, pa.large_binary()))
            same[there] = flags_of(equal.drop_null())
            return same
        same[there] = _equal_values(self._decoded(cells.drop_null()), value)
        return same

    def _decoded(self, cells: pa.Array) -> NDArray[Any]:
        field = self.field
        is_object = field.dtype.hasobject or not field.is_fixed
        values: NDArray[Any] = (
            np.empty(len(cells), object) if is_object else np.empty((len(cells), *_sizes(field)), field.dtype)
        )
        codec_of(field).decode_column(cells, field, values)
        return values

    def shown(self, cell: pa.Array) -> str:
        """One cell for a message."""
        if cell.null_count:
            return "null"
        (value,) = self._decoded(cell)
        return repr(value) if isinstance(value, (str, bytes)) else str(value)


def _sizes(field: UnischemaField) -> tuple[int, ...]:
    return tuple(size for size in field.shape if size is not None)


def _is_text(stored: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(stored) or types.is_large_string(stored) or types.is_binary(stored))


def _equal_values(values: NDArray[Any], value: Any) -> NDArray[np.bool_]:
    if values.dtype == np.dtype(object):
        kind = (Decimal,) if isinstance(value, Decimal) else (str, bytes)
        return np.fromiter((isinstance(one, kind) and one == value for one in values), np.bool_, len(values))
    equal = values == value
    return equal | (np.isnan(values) & np.isnan(value)) if values.dtype.kind == "f" else equal


def _first(bad: NDArray[np.bool_]) -> int | None:
    return int(np.argmax(bad)) if bad.any() else None


def held_against_directory(
    tables: Iterator[pa.Table], keys: Sequence[StoredKey], file: DataFile, row_group: int
) -> Iterator[pa.Table]:
    """The tables of a row group as they are, each refused where a stored key contradicts the file's directory.

    Args:
        tables: Of each column all rows in the order of the file, in one table or in several.
        keys: The keys that the files store, too.
        file: What is read.
        row_group: Its number there.

    Raises:
        DecodeError: The directory and a cell contradict each other; both values and the place are named.
    """
    said = dict(file.partitions)
    rows_before: dict[str, int] = {}
    for table in tables:
        for key in keys:
            name = key.field.name
            if name not in table.column_names:
                continue
            first = rows_before.get(name, 0)
            rows_before[name] = first + table.num_rows
            column = table.column(name)
            cells = only_chunk(column)
            try:
                row = key.first_contradiction(cells, said[name])
            except DecodeError:
                continue  # who decodes the column says what is wrong with it
            if row is not None:
                problem = _contradiction(key, said[name], cells.slice(row, 1))
                raise problem.at(file=file.path, row_group=row_group, row=first + row)
        yield table


def _contradiction(key: StoredKey, text: str | None, cell: pa.Array) -> DecodeError:
    directory = "null" if text is None else repr(text)
    return DecodeError(
        f"the cell is {key.shown(cell)}, but the file lies under the partition {key.field.name}={directory}, and which "
        "of the two is right is not known; move the file, write it again, or leave the column out with schema_fields",
        column=key.field.name,
    )
