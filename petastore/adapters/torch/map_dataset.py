"""MapDataset: rows by number over Parquet, for any sampler of torch."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex

import numpy as np
import torch
import torch.utils.data

from petastore.adapters.nulls import Nulls, nulls_of
from petastore.adapters.torch.ragged import TorchForm, ragged_columns
from petastore.adapters.torch.rows import DecodedRows
from petastore.adapters.torch.tensors import refuse_dtypes
from petastore.codecs.images.image_hint import ImageDecode
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Fields
from petastore.plan.selection import Selection
from petastore.readers.asked import (
    CacheAsk,
    CacheType,
    DatasetAsk,
    Filters,
    Predicate,
    RowGroupSelector,
    RowsAsk,
    SelectionCache,
    Urls,
)
from petastore.readers.by_number.random_access import DEFAULT_CACHE_BYTES, RandomAccess
from petastore.readers.loaded.recent_row_groups import CacheInfo
from petastore.schema.unischema import Unischema
from petastore.storage.requests.under_way import DEFAULT_STORAGE_TIMEOUT_S
from petastore.transforming.transform import AnyTransform
from petastore.work.workers import DEFAULT_MAX_CELL_BYTES, Workers

__all__ = ["MapDataset", "selected_rows"]


class MapDataset(torch.utils.data.Dataset[dict[str, Any]]):
    """Rows by number, so that any sampler of torch works: a map-style dataset over Parquet.

    Row i is the i-th row of an unshuffled reader (files sorted by path), as a dict from column name to a tensor, or to
    the Python value where no tensor can be: as the table of `DataLoader` says, and None where a value is missing.
    `torch.utils.data.default_collate` makes batches of it where all tensors of a column are of one shape and there is
    no text missing; `decimal_friendly_collate` makes the batches that `DataLoader` makes, and copies nothing.

    Parquet is read by row groups. Each process keeps those that it used last, encoded, up to `cache_bytes`; with a
    sampler that jumps all over a dataset that is larger, nearly every row costs the reading of a row group. Give the
    sampler's order a `BlockSampler`, or read in the reader's order: that is what `DataLoader` and `ReaderDataset` are
    for.

    Thread-safe. Pickles, and may be inherited by forked workers: each of them opens files and keeps row groups by
    itself, and nothing is started here.

    Args:
        dataset: What `petastore.open_dataset` gave, or a URL or list of URLs to open.
        schema_fields: Names, regular expressions over whole names, or fields; None is all.
        cache_bytes: Bytes of row groups, as they are stored, that a process keeps; the one that was read last is kept
            whatever its size.
        max_cell_bytes: As in `make_reader`.
        decode: As in `make_reader`.
        transform_spec: A function from a row, as a dict of NumPy values, to a row, or of what `TransformSpec.takes`
            says; it runs each time that a row is asked for.
        selection: Which rows, from `petastore.select_rows`; they are numbered among themselves.
        filters: Which rows instead, as in `make_reader`; they are looked for here, once, and numbered among themselves.
        predicate: As in `make_reader`.
        rowgroup_selector: As in `make_reader`.
        filter_cache: As in `make_reader`.
        ragged: As in `DataLoader`, for the batches that `decimal_friendly_collate` makes; a row has its own tensor.
        nulls: As in `DataLoader`, for rows and batches.
        cache_type: As in `make_reader`: what is kept on the local disk beside `cache_bytes` in memory.
        cache_location: As in `make_reader`.
        cache_size_limit: As in `make_reader`.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.
        storage_timeout: As in `make_reader`.
        storage_hedging: As in `make_reader`.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be.
        DatasetNotFoundError: There is no dataset there.

    Warns:
        CacheBypassWarning: `cache_type="local-disk"` keeps nothing there.

    Example:
        >>> import petastore, tempfile
        >>> schema = petastore.Unischema("points", [petastore.UnischemaField("xy", "float32", (2,))])
        >>> url = tempfile.mkdtemp() + "/points"
        >>> _ = petastore.write_dataset(url, schema, [{"xy": np.full(2, i, "float32")} for i in range(5)])
        >>> points = MapDataset(url)
        >>> len(points), points[-1]
        (5, {'xy': tensor([4., 4.])})
        >>> loader = torch.utils.data.DataLoader(points, batch_size=3, shuffle=True)
        >>> [batch["xy"].shape for batch in loader]
        [torch.Size([3, 2]), torch.Size([2, 2])]
    """

    def __init__(
        self,
        dataset: Dataset | Urls,
        schema_fields: Fields | None = None,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
        decode: Mapping[str, ImageDecode] | None = None,
        transform_spec: AnyTransform | None = None,
        selection: Selection | None = None,
        filters: Filters | None = None,
        predicate: Predicate | None = None,
        rowgroup_selector: RowGroupSelector | None = None,
        filter_cache: SelectionCache = True,
        ragged: TorchForm | Mapping[str, TorchForm] = "auto",
        nulls: Nulls = "error",
        cache_type: CacheType | None = "null",
        cache_location: str | os.PathLike[str] | None = None,
        cache_size_limit: int | None = None,
        storage_options: Mapping[str, Any] | None = None,
        filesystem: Any = None,
        storage_timeout: float | None = DEFAULT_STORAGE_TIMEOUT_S,
        storage_hedging: bool = False,
    ) -> None:
        rows = RowsAsk(filters, predicate, rowgroup_selector, filter_cache)
        cache = CacheAsk(cache_type, cache_location, cache_size_limit)
        workers = Workers("thread", max_cell_bytes=max_cell_bytes)
        ask = DatasetAsk(dataset, storage_options, filesystem, storage_timeout, decode, cache, storage_hedging)
        opened = ask.opened_alone()
        fields = opened.fields_of(schema_fields)  # refused before a filter reads anything
        selection = selected_rows(opened, rows, selection, workers=workers)
        self.rows = RandomAccess(
            opened,
            fields,
            cache_bytes=cache_bytes,
            max_cell_bytes=max_cell_bytes,
            transform=transform_spec,
            selection=selection,
        )
        """The rows as NumPy arrays: `rows.take([3, 1])`."""
        refuse_dtypes(self)
        self._ragged, self._nulls = ragged_columns(self.rows, ragged), nulls_of(nulls, self.schema)

    @property
    def schema(self) -> Unischema:
        """The fields of a row, after selection and transform."""
        return self.rows.schema

    def __len__(self) -> int:
        """Rows."""
        return len(self.rows)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        """One row; negative numbers count from the end.

        Raises:
            IndexError: There is no such row.
            DecodeError: A cell is not what its field declares; column, file, row group and row are named.
        """
        row: dict[str, Any] = self.__getitems__([index])[0]
        return row

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Sequence[dict[str, Any]]:
        """Many rows in the order asked for, decoded together; torch's DataLoader asks for a batch so.

        Each row group is read at most once a call. The rows share memory with each other; they are made when somebody
        looks at them.
        """
        numbers = np.fromiter((_whole_index(index) for index in indices), dtype=np.int64, count=len(indices))
        columns: dict[str, Any] = {}
        for name, column in self.rows.take(numbers).items():
            columns |= self._nulls[name].columns(column) if name in self._nulls else {name: column}
        return DecodedRows(columns, len(numbers), self._ragged)

    def cache_info(self) -> CacheInfo:
        """What the cache of this process has done so far: row groups read, and found at hand."""
        return self.rows.cache_info()

    def __repr__(self) -> str:
        return f"MapDataset({self.rows.dataset.url!r}, {len(self):,} rows, {len(self.schema)} columns)"


def selected_rows(
    dataset: Dataset, rows: RowsAsk, selection: Selection | None, *, workers: Workers
) -> Selection | None:
    """The rows that are wanted: those of a selection that was given, or those that are asked for; None is all.

    Raises:
        InvalidArgumentError: Both were given; or what is asked for cannot be.
    """
    if rows.is_for_all:
        return selection
    if selection is not None:
        raise InvalidArgumentError(
            "selection= says which rows are meant, and filters=, predicate= or rowgroup_selector= says it again; give "
            "them to petastore.select_rows, which made the selection, or leave it out"
        )
    return rows.selected(dataset, workers=workers)


def _whole_index(index: Any) -> int:
    try:
        return operator.index(index)
    except TypeError:
        raise TypeError(f"a row is asked for by its number, but {index!r:.100} was given") from None
