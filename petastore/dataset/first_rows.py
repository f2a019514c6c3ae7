"""The first rows of a dataset, as rows and as columns; little more is read of its files than these."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers
from petastore.codecs.registry import codec_of
from petastore.decoding.cell_sizes import DEFAULT_MAX_CELL_BYTES, refuse_large_fields
from petastore.decoding.decode import decode_cells
from petastore.decoding.decoded import Decoded, empty_column
from petastore.errors import DecodeError
from petastore.inventory import DataFile, Inventory
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.row_groups.asked_columns import Part

__all__ = ["first_columns", "first_rows"]


class _Dataset(Protocol):
    """The part of `petastore.Dataset` that is used here."""

    @property
    def inventory(self) -> Inventory: ...

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]: ...

    def reading(self) -> Callable[[DataFile, int, Sequence[Part]], Iterator[pa.Table]]: ...


def first_rows(dataset: _Dataset, fields: Sequence[UnischemaField], count: int) -> Iterator[dict[str, Any]]:
    """The rows that an unshuffled reader gives first, one by one.

    Of each row group that has some of them, and of no other, the pages are read that hold these rows of these columns,
    in the calling thread; that many cells are decoded, and no more. A reader would load and decode whole row groups,
    and go on with the next ones meanwhile.

    Args:
        dataset: The dataset.
        fields: Fields of its schema.
        count: How many rows, if there are so many.

    Returns:
        Of each row field name to value: a NumPy scalar or array, or `str`, `bytes` or `Decimal`; None where it is
        missing.

    Raises:
        InvalidArgumentError: Values of a field are larger than readers take unless asked otherwise.
        DatasetChangedError: A file is not the one that the inventory describes.
        DecodeError: A cell is not what its field declares; column, file, row group and row are named.
        StorageError: A file cannot be read.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("name", "str", nullable=True)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"name": "Ada"}, {"name": None}, {"name": "B"}])
        ...     dataset = petastore.open_dataset(folder + "/users")
        ...     list(first_rows(dataset, tuple(dataset.schema), 2))
        [{'name': 'Ada'}, {'name': None}]
    """
    for rows, columns in _first_groups(dataset, fields, count):
        for row in range(rows):
            yield {name: _value(column, row) for name, column in columns.items()}


def first_columns(dataset: _Dataset, fields: Sequence[UnischemaField], count: int | None) -> dict[str, NDArray[Any]]:
    """The columns of the rows that an unshuffled reader gives first.

    Args:
        dataset: The dataset.
        fields: Fields of its schema.
        count: How many rows, if there are so many; None is all.

    Returns:
        Field name to array: `(rows, *shape)`, masked where values are missing, or `(rows,)` of objects with None.

    Raises:
        PetastoreError: As `first_rows`.
    """
    found: dict[str, list[NDArray[Any]]] = {field.name: [empty_column(field, 0)] for field in fields}
    for rows, columns in _first_groups(dataset, fields, dataset.inventory.num_rows if count is None else count):
        for name, column in columns.items():
            found[name].append(column.rows(0, rows))
    return {
        name: np.ma.concatenate(parts)  # type: ignore[no-untyped-call]
        if any(map(np.ma.isMaskedArray, parts))
        else np.concatenate(parts)
        for name, parts in found.items()
    }


def _first_groups(
    dataset: _Dataset, fields: Sequence[UnischemaField], count: int
) -> Iterator[tuple[int, dict[str, Decoded]]]:
    """Yield, for each row group with some of the first rows, their number and columns."""
    refuse_large_fields(Unischema("head", fields), DEFAULT_MAX_CELL_BYTES)
    left = count
    for group, rows in enumerate(dataset.inventory.rows.tolist()):
        asked = min(left, rows)
        if asked:
            left -= asked
            yield asked, _columns(dataset, fields, group, asked)


def _columns(dataset: _Dataset, fields: Sequence[UnischemaField], group: int, rows: int) -> dict[str, Decoded]:
    """The first rows of a row group."""
    file, ordinal = dataset.inventory.place_of(group)
    cells = _cells(dataset, [field.name for field in fields], group, rows)
    try:
        return {
            field.name: decode_cells(cells[field.name], field, codec_of(field), max_cell_bytes=DEFAULT_MAX_CELL_BYTES)
            for field in fields
        }
    except DecodeError as problem:
        raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__


def _cells(dataset: _Dataset, columns: Sequence[str], group: int, rows: int) -> dict[str, Any]:
    """Of each column the stored cells, as a `pyarrow.Array` of shape (rows,)."""
    of_groups = dataset.partition_values(columns)
    same = arrow_numbers(np.full(rows, group, np.int32))
    cells = {name: values.take(same) for name, values in of_groups.items()}
    stored = tuple(name for name in columns if name not in cells)
    if stored:
        (table,) = dataset.reading()(*dataset.inventory.place_of(group), [Part(stored, first=rows)])
        cells |= {name: table.column(name).combine_chunks() for name in stored}
    return cells


def _value(column: Decoded, row: int) -> Any:
    return None if column.missing is not None and column.missing[row] else column.values[row]
