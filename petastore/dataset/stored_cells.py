"""Read the first rows of a dataset (`head`), and check stored partition keys.

`head` reads the first rows without reading whole row groups.

A stored partition key is a partition key that the files also have as a column. In files under `day=1/`, the values of a
stored column `day` must equal the value in the directory name. Readers return the stored values, in their stored type.
Each value that is read is compared with the directory name, where `day=01` equals the integer 1.

If only some files have the column, readers return the values of the directory names for all files. The stored values
are compared when the column is first read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow import compute as pc
from petastore.arrow import flags_of, only_chunk
from petastore.codecs.registry import codec_of
from petastore.decoding.decode import DEFAULT_MAX_CELL_BYTES, Decoded, decode_cells, empty_column, refuse_large_fields
from petastore.errors import DecodeError, SchemaError
from petastore.inventory import DataFile, Inventory, ReadUnit
from petastore.schema.arrow import is_bytes, is_text
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.files.listing import partition_value
from petastore.storage.row_groups.asked_columns import Part

__all__ = [
    "StoredKey",
    "first_columns",
    "first_rows",
    "held_against_directory",
    "stored_cells",
]


class _Dataset(Protocol):
    """Interface of `petastore.Dataset` that this module needs.

    `petastore.dataset.dataset` imports this module, so that this module cannot import `Dataset`.
    """

    @property
    def inventory(self) -> Inventory: ...

    def partition_values(self, columns: Sequence[str]) -> dict[str, pa.Array]: ...

    def read(self, unit: ReadUnit) -> pa.Table: ...

    def reading(self) -> Callable[[DataFile, int, Sequence[Part]], Iterator[pa.Table]]: ...


def first_rows(dataset: _Dataset, fields: Sequence[UnischemaField], count: int) -> Iterator[dict[str, Any]]:
    """Yield the first rows, in the order of an unshuffled reader.

    The calling thread reads only the pages with these rows and columns, and decodes only these cells. A reader would
    load and decode whole row groups, and prefetch the next ones.

    Args:
        dataset: Dataset to read.
        fields: Fields to read, from its schema.
        count: Maximum number of rows.

    Yields: For each row a dict from field name to value: a NumPy scalar or array, `str`, `bytes` or `Decimal`; None if
        it is missing.

    Raises:
        InvalidArgumentError: Values of a field are larger than the default of `max_cell_bytes`.
        DatasetChangedError: A file differs from the inventory.
        DecodeError: A cell does not match its field; the message names column, file, row group and row.
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
            yield {name: column.value(row) for name, column in columns.items()}


def first_columns(dataset: _Dataset, fields: Sequence[UnischemaField], count: int | None) -> dict[str, NDArray[Any]]:
    """Return the first rows as columns, in the order of an unshuffled reader.

    Args:
        dataset: Dataset to read.
        fields: Fields to read, from its schema.
        count: Maximum number of rows; None means all.

    Returns:
        A dict from field name to array: `(rows, *shape)`, masked where values are missing, or `(rows,)` of objects with
        None.

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
    """Yield (number of rows, columns) for each row group with some of the first rows."""
    refuse_large_fields(Unischema("head", fields), DEFAULT_MAX_CELL_BYTES)
    left = count
    for group, rows in enumerate(dataset.inventory.rows.tolist()):
        asked = min(left, rows)
        if asked:
            left -= asked
            yield asked, _columns(dataset, fields, group, asked)


def _columns(dataset: _Dataset, fields: Sequence[UnischemaField], group: int, rows: int) -> dict[str, Decoded]:
    """Return the first rows of a row group as decoded columns."""
    file, ordinal = dataset.inventory.place_of(group)
    names = [field.name for field in fields]
    cells = stored_cells(dataset, names, group, partitions=dataset.partition_values(names), first=rows)
    try:
        return {
            field.name: decode_cells(cells[field.name], field, codec_of(field), max_cell_bytes=DEFAULT_MAX_CELL_BYTES)
            for field in fields
        }
    except DecodeError as problem:
        raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__


def stored_cells(
    dataset: _Dataset,
    columns: Sequence[str],
    group: int,
    *,
    partitions: Mapping[str, Any],
    first: int | None = None,
) -> dict[str, Any]:
    """Read the stored cells (not decoded) of some columns of a row group.

    Partition columns have one value for all rows of the row group.

    Args:
        dataset: Dataset to read.
        columns: Names of the columns to read.
        group: Number of the row group.
        partitions: Values of the partition columns, from `Dataset.partition_values`.
        first: Number of rows to read, from the first; None means all.

    Returns:
        A dict from column name to a `pyarrow.Array` of shape (rows,).
    """
    rows = int(dataset.inventory.rows[group]) if first is None else first
    cells = {name: pa.repeat(partitions[name][group], rows) for name in columns if name in partitions}
    stored = tuple(name for name in columns if name not in cells)
    if not stored:
        return cells
    if first is None:
        table = dataset.read(ReadUnit.whole(dataset.inventory, group, stored))
    else:
        (table,) = dataset.reading()(*dataset.inventory.place_of(group), [Part(stored, first=first)])
    return cells | {name: only_chunk(table.column(name)) for name in stored}


@dataclasses.dataclass(frozen=True, slots=True)
class StoredKey:
    """Partition key that is also a column of the files.

    Example:
        >>> day = StoredKey(UnischemaField("day", "int32"))
        >>> day.first_contradiction(pa.array([1, 1, 2]), "01"), day.first_contradiction(pa.array([1, 1]), "1")
        (2, None)
    """

    field: UnischemaField
    """Field of the stored column in the schema."""

    def first_contradiction(self, cells: pa.Array, text: str | None) -> int | None:
        """Return the first row whose cell contradicts the directory; None if all agree.

        Args:
            cells: The stored cells.
            text: Value in the directory name, decoded; None is null.

        Raises:
            DecodeError: A cell does not match the field; `row` is set.
        """
        missing = flags_of(cells.is_null())
        if text is None:
            return _first(~missing)
        try:
            value = partition_value(text, self.field)
        except SchemaError:
            return 0 if len(cells) else None  # the column cannot hold this value
        return _first(missing | ~self._equal(cells, value))

    def _equal(self, cells: pa.Array, value: Any) -> NDArray[np.bool_]:
        """Return a mask of the cells with this value; False for missing cells."""
        same = np.zeros(len(cells), np.bool_)
        if isinstance(cells, pa.DictionaryArray):
            cells = cells.dictionary_decode()
        there = flags_of(cells.is_valid())
        if isinstance(value, (str, bytes)) and (is_text(cells.type) or is_bytes(cells.type)):
            wanted = value.encode() if isinstance(value, str) else value
            equal = pc.equal(cells.cast(pa.large_binary()), pa.scalar(wanted, pa.large_binary()))
            same[there] = flags_of(equal.drop_null())
            return same
        same[there] = _equal_values(self._decoded(cells.drop_null()), value)
        return same

    def _decoded(self, cells: pa.Array) -> NDArray[Any]:
        return decode_cells(cells, self.field, codec_of(self.field), max_cell_bytes=None).values

    def shown(self, cell: pa.Array) -> str:
        """Format one cell for an error message."""
        if cell.null_count:
            return "null"
        (value,) = self._decoded(cell)
        return repr(value) if isinstance(value, (str, bytes)) else str(value)


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
    """Yield the tables of a row group, after checking the partition keys that they contain.

    The value of a key in each row must equal the value in the directory name of the file.

    Args:
        tables: All rows of each column in the order of the file, in one table or several.
        keys: Partition keys that the files also store.
        file: File that is read.
        row_group: Number of the row group in the file.

    Raises:
        DecodeError: A cell contradicts the directory name; the message has both values, file, row group and row.
    """
    said = dict(file.partitions)
    rows_before: dict[str, int] = {}
    for table in tables:
        for key in keys:
            name = key.field.name
            if name not in table.column_names or name not in said:
                continue
            first = rows_before.get(name, 0)
            rows_before[name] = first + table.num_rows
            column = table.column(name)
            cells = only_chunk(column)
            try:
                row = key.first_contradiction(cells, said[name])
            except DecodeError:
                continue  # the decoder of the column raises the error
            if row is not None:
                problem = _contradiction(key, said[name], cells.slice(row, 1))
                raise problem.at(file=file.path, row_group=row_group, row=first + row)
        yield table


def _contradiction(key: StoredKey, text: str | None, cell: pa.Array) -> DecodeError:
    directory = "null" if text is None else repr(text)
    return DecodeError(
        f"the cell must equal {directory}, the value in the directory name {key.field.name}={directory}, got "
        f"{key.shown(cell)}. Move the file, write the file again, or leave the column out with schema_fields",
        column=key.field.name,
    )
