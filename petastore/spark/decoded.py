"""Row groups of a dataset, decoded where Spark's workers run, as columns that Spark itself can hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.adapters.columns import missing_rows
from petastore.codecs import ScalarCodec
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.errors import EncodeError, SchemaError
from petastore.readers.by_number.random_access import RandomAccess
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema

__all__ = ["DecodedRowGroups", "plain_batch", "plain_schema"]

_PART_BYTES = 16 * 1024 * 1024
# What is assumed of a value whose size no schema knows.
_FREE_BYTES = 16 * 1024


class DecodedRowGroups:
    """The row groups of a dataset, each in parts of some megabytes. Pickles without what it has read.

    Args:
        dataset: The dataset.
        columns: Names, regular expressions over whole names, or fields; None is all.
        part_bytes: Decoded bytes of a part, about.

    Raises:
        InvalidArgumentError: Columns that were asked for match nothing.

    Example:
        >>> import petastore, tempfile
        >>> schema = Unischema("user", [UnischemaField("id", "int64")])
        >>> url = tempfile.mkdtemp() + "/users"
        >>> _ = petastore.write_dataset(url, schema, [{"id": n} for n in range(5)], rows_per_row_group=3)
        >>> groups = DecodedRowGroups(petastore.open_dataset(url))
        >>> [[part["id"].tolist() for part in groups.parts(group)] for group in range(len(groups))]
        [[[0, 1, 2]], [[3, 4]]]
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Iterable[str | UnischemaField] | None = None,
        *,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        self._part_bytes = part_bytes
        self._rows = RandomAccess(dataset, columns, cache_bytes=0)
        counts = dataset.inventory.rows
        self._stops = np.cumsum(counts)
        self._starts = self._stops - counts

    @property
    def schema(self) -> Unischema:
        """What a row is."""
        return self._rows.schema

    def __len__(self) -> int:
        """Row groups."""
        return len(self._stops)

    def parts(self, group: int) -> Iterator[dict[str, NDArray[Any]]]:
        """The rows of a row group, part after part: column name to array, as `reader.iter_batches` gives them.

        Raises:
            DecodeError: A cell is not what its field declares; column, file, row group and row are named.
            DatasetChangedError: The file is not the one that the inventory describes.
            StorageError: It cannot be read.
        """
        row_bytes = sum(_FREE_BYTES if (size := field.decoded_bytes) is None else size for field in self.schema)
        step = max(1, self._part_bytes // max(1, row_bytes))
        start, stop = int(self._starts[group]), int(self._stops[group])
        for first in range(start, stop, step):
            yield self._rows.take(np.arange(first, min(first + step, stop)))


def plain_schema(schema: Unischema) -> Unischema:
    """The schema of decoded columns: scalars in the types that they are stored in, tensors as nested arrays.

    Raises:
        SchemaError: Spark has no type for a field.

    Example:
        >>> from petastore.codecs import NdarrayCodec
        >>> schema = Unischema("user", [UnischemaField("pose", "float32", (2, 2), NdarrayCodec())])
        >>> plain_schema(schema)["pose"]
        UnischemaField('pose', float32, (2, 2))
    """
    fields = [
        field if isinstance(field.codec, ScalarCodec) else dataclasses.replace(field, codec=None) for field in schema
    ]
    for field in fields:
        try:
            storage_schema([field])
        except SchemaError:
            raise SchemaError(
                f"field {field.name!r}: a DataFrame has no type for {field.dtype_name}; leave it out with schema_fields"
            ) from None
    return Unischema(schema.name, fields)


def plain_batch(columns: dict[str, NDArray[Any]], schema: Unischema) -> pa.RecordBatch:
    """Decoded columns as Arrow's, of `petastore.schema.arrow.storage_schema(schema)`.

    Args:
        columns: Column name to array; masked, or with None, where values are missing.
        schema: What `plain_schema` gave.

    Raises:
        EncodeError: Spark's type of a field cannot hold a value of it.

    Example:
        >>> schema = Unischema("user", [UnischemaField("pose", "uint8", (2,), nullable=True)])
        >>> poses = np.ma.MaskedArray(np.array([[1, 2], [0, 0]], "uint8"), [[False, False], [True, True]])
        >>> plain_batch({"pose": poses}, schema).to_pydict()
        {'pose': [[1, 2], None]}
    """
    cells = []
    for field in schema:
        try:
            cells.append(_cells(columns[field.name], field))
        except EncodeError as problem:
            raise problem.at(column=field.name) from problem.__cause__
    return pa.RecordBatch.from_arrays(cells, schema=storage_schema(schema))


def _cells(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    missing = missing_rows(values)
    if not missing.any():
        return _encoded(np.ma.getdata(values), field)
    cells = _encoded(np.ma.getdata(values)[~missing], field)
    return cells.take(pa.array(np.cumsum(~missing) - 1, pa.int64(), mask=missing))


def _encoded(values: NDArray[Any], field: UnischemaField) -> pa.Array:
    return codec_of(field).encode_column(values if field.is_fixed else list(values), field)
