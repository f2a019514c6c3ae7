"""Random access: rows of a dataset by their numbers, decoded together, column by column."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from petastore.arrow.memory import arrow_numbers, concatenate
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.cell_sizes import refuse_large_fields
from petastore.decoding.decode import Decoded, decode_cells
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.request import whole_number
from petastore.plan.selection import Selection
from petastore.plan.unit import ReadUnit
from petastore.readers.by_number.reopen import reopened
from petastore.readers.execution.first_row import described
from petastore.readers.loaded.recent_row_groups import CacheInfo, RecentRowGroups
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import (
    AnyTransform,
    as_transform_spec,
    takes_frames,
    transform_columns,
    transform_schema,
)
from petastore.work.workers import DEFAULT_MAX_CELL_BYTES, Workers

__all__ = ["DEFAULT_CACHE_BYTES", "RandomAccess"]

DEFAULT_CACHE_BYTES = 256 * 1024 * 1024
"""Bytes of row groups that a process keeps for random access, unless asked otherwise."""


class RandomAccess:
    """Rows by number: row i is the i-th row of an unshuffled reader, files sorted by path.

    Thread-safe; no lock is held over IO or decoding. Pickles without what it has read; in a forked child it begins
    afresh, with a filesystem of its own. It starts no threads and keeps no file open.

    Args:
        dataset: The dataset.
        columns: Names, regular expressions over whole names, or fields; None is all.
        cache_bytes: Bytes of row groups, as they are stored, that are kept from call to call; the one that was read
            last is kept whatever its size.
        max_cell_bytes: Bytes that one cell may take once decoded; a larger one is refused before memory is taken for
            it. None is no limit.
        transform: A function from a row, as a dict, to a row. It runs for each row that is asked for, each time.
        selection: Which rows a filter keeps; rows are numbered among them.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": i} for i in range(10, 15)])
        ...     rows = RandomAccess(petastore.open_dataset(folder + "/users"))
        ...     len(rows), rows.take([3, 0, -1])["id"].tolist()
        (5, [13, 10, 14])
    """

    def __init__(
        self,
        dataset: Dataset,
        columns: Iterable[str | UnischemaField] | None = None,
        *,
        cache_bytes: int = DEFAULT_CACHE_BYTES,
        max_cell_bytes: int | None = DEFAULT_MAX_CELL_BYTES,
        transform: AnyTransform | None = None,
        selection: Selection | None = None,
    ) -> None:
        fields = dataset.fields_of(columns)
        self.dataset = dataset
        """The dataset that is read."""
        self.selection = selection
        """Which rows are meant; None is all."""
        self.cache_bytes = whole_number(cache_bytes, name="cache_bytes", least=0)
        """Bytes of row groups that are kept."""
        self.max_cell_bytes = Workers(max_cell_bytes=max_cell_bytes).max_cell_bytes
        """Bytes that one cell may take once decoded; None is no limit."""
        self._view = Unischema(f"{dataset.schema.name}_view", fields)
        refuse_large_fields(self._view, self.max_cell_bytes)
        if selection is not None and len(selection.counts) != dataset.inventory.num_row_groups:
            raise InvalidArgumentError(
                f"the selection speaks of {len(selection.counts):,} row groups, but {dataset.url} has "
                f"{dataset.inventory.num_row_groups:,}; it was made for another dataset, or another version of it"
            )
        workers = Workers("dummy", max_cell_bytes=self.max_cell_bytes)
        spec = as_transform_spec(transform)
        if spec is not None and spec.rng is not None:
            raise InvalidArgumentError(
                f"rng must be None where rows are read by number, got {spec.rng!r}: such a read has neither seed nor "
                "epoch. Use make_reader or ReaderDataset"
            )
        self.transform = described(spec, dataset, selection, self._view, workers=workers, batched=False)
        """The transform of each row; None leaves rows as they are."""
        self.schema = self._view if self.transform is None else transform_schema(self._view, self.transform)
        """What comes out: the fields after selection and transform."""
        # stops: (groups,) number of the first row after each row group
        self._stops = np.cumsum(self.rows)
        self._partition_values = dataset.partition_values(tuple(self._view.fields))
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._row_groups = RecentRowGroups(self._read, self.cache_bytes)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_process", "_row_groups")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    @property
    def rows(self) -> NDArray[np.int64]:
        """Rows of each row group that are meant, shape (groups,)."""
        return self.dataset.inventory.rows if self.selection is None else self.selection.counts

    def __len__(self) -> int:
        """Rows that are meant."""
        return int(self._stops[-1]) if len(self._stops) else 0

    def cache_info(self) -> CacheInfo:
        """What the cache of this process has done so far, and what it holds."""
        return self._of_this_process().info()

    def take(self, numbers: ArrayLike) -> dict[str, NDArray[Any]]:
        """Rows by their numbers, in the order asked for; a row may be asked for more than once.

        Each row group is read at most once, and let go of as soon as its cells are picked, unless the cache keeps it.

        Args:
            numbers: Whole numbers in [-len(self), len(self)), shape (n,); negative ones count from the end.

        Returns:
            Column name to array, shape (n, …), as `petastore.readers.batch.Batch` has them; the caller owns them.

        Raises:
            IndexError: There is no such row.
            DatasetChangedError: A file is not the one that the inventory describes.
            DecodeError: A cell is not what its field declares; column, file, row group and row are named.
            StorageError: A file cannot be read.
            TransformError: From the user's function.
        """
        # groups, rows: (n,) row group of each row, and its place inside
        groups, rows = self._places(np.atleast_1d(np.asarray(numbers)))
        cells = self._cells(groups, rows)
        columns = {field.name: self._decoded(field, cells[field.name], groups, rows) for field in self._view}
        if self.transform is not None:
            calls = np.array([0, len(rows)], dtype=np.int64)
            zones = self.dataset.time_zones if takes_frames(self.transform, batched=False) else {}
            columns = transform_columns(columns, calls, self.schema, self.transform, batched=False, zones=zones)
        return {name: column.rows(0, len(rows)) for name, column in columns.items()}

    def _places(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        if len(numbers) and numbers.dtype.kind not in "iu":
            raise TypeError(f"rows are asked for by whole numbers, but {numbers.dtype} was given")
        total = len(self)
        outside = (numbers < -total) | (numbers >= total)
        if outside.any():
            raise IndexError(f"there is no row {int(numbers[outside][0]):,}; {self.dataset.url} has {total:,} rows")
        numbers = numbers.astype(np.int64)
        numbers[numbers < 0] += total
        # A row group without rows stops where it begins, so none is ever found.
        groups = np.searchsorted(self._stops, numbers, side="right").astype(np.int32)
        places = numbers - (self._stops[groups] - self.rows[groups])
        return groups, places if self.selection is None else self.selection.rows_at(groups, places)

    def _cells(self, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> dict[str, Any]:
        """The stored cells of each column, a `pyarrow.Array` of shape (n,) in the order asked for."""
        partitions = self._partition_values.items()
        cells = {name: of_groups.take(arrow_numbers(groups)) for name, of_groups in partitions}
        stored = [name for name in self._view.fields if name not in cells]
        if not stored:
            return cells
        by_group = np.argsort(groups, kind="stable")
        needed, firsts = np.unique(groups[by_group], return_index=True)
        picks = [rows[by_group[first:stop]] for first, stop in itertools.pairwise([*firsts.tolist(), len(rows)])]
        row_groups = self._of_this_process()
        parts = [
            row_groups.get(group).take(arrow_numbers(rows)) for group, rows in zip(needed.tolist(), picks, strict=True)
        ]
        back = None if (np.diff(by_group) == 1).all() else arrow_numbers(np.argsort(by_group))
        for name in stored:
            chunks = [chunk for part in parts for chunk in part.column(name).chunks]
            joined = concatenate(chunks) if chunks else pa.array([], self._empty_type(name))
            cells[name] = joined if back is None else joined.take(back)
        return cells

    def _empty_type(self, name: str) -> pa.DataType:
        return self.dataset.arrow_schema.field(name).type

    def _decoded(
        self, field: UnischemaField, cells: Any, groups: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> Decoded:
        try:
            return decode_cells(cells, field, codec_of(field), max_cell_bytes=self.max_cell_bytes)
        except DecodeError as problem:
            if problem.row is None:
                raise
            file, ordinal = self.dataset.inventory.place_of(int(groups[problem.row]))
            problem.row = int(rows[problem.row])
            raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__

    def _of_this_process(self) -> RecentRowGroups:
        if self._process != os.getpid():
            self.dataset = reopened(self.dataset)
            self._begin()
        return self._row_groups

    def _read(self, group: int) -> pa.Table:
        return self.dataset.read(ReadUnit.whole(self.dataset.inventory, group, self._view.fields))
