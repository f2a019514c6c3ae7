"""Random access: read and decode rows of a dataset by row number, with an LRU cache of row groups in memory.

The cache stores encoded cells (JPEG bytes, not pixels).
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from petastore.arrow import arrow_numbers, concatenate
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import Decoded, decode_cells, refuse_large_fields
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.forks import made_anew_in_children
from petastore.inventory import ReadUnit
from petastore.plan.order.grouped_rows import inverse, places_by_key
from petastore.plan.request import whole_number
from petastore.plan.selection import Selection
from petastore.readers.execution.first_row import described
from petastore.readers.execution.position import places_of_rows, with_provenance_fields
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.storage.requests.retries import SingleFlight
from petastore.transforming.transform import (
    AnyTransform,
    as_transform_spec,
    takes_frames,
    transform_columns,
    transform_schema,
)
from petastore.work.pools import DEFAULT_MAX_CELL_BYTES, Workers

__all__ = ["DEFAULT_CACHE_BYTES", "CacheInfo", "RandomAccess", "RecentRowGroups", "reopened"]


@dataclasses.dataclass(frozen=True, slots=True)
class CacheInfo:
    """Counters and size of a cache of row groups."""

    hits: int
    """Number of requests for a row group that was in memory, or that another thread was already reading."""

    reads: int
    """Number of row groups read. If this number is much larger than the number of row groups in the dataset,
    `max_bytes` is too small for the order of requests."""

    row_groups: int
    """Number of cached row groups."""

    held_bytes: int
    """Bytes of the cached row groups in memory."""

    max_bytes: int
    """Maximum bytes of cached row groups."""


class RecentRowGroups:
    """LRU cache of row groups in memory, as Arrow tables; reads a row group on a miss.

    Thread-safe. No lock is held while reading, and concurrent requests for a row group share one read. The last row
    group is always cached, even if it is larger than `max_bytes`. Evicted row groups that threads still use take
    additional memory.

    Args:
        read: Function that reads a row group by its number in the dataset.
        max_bytes: Maximum bytes to cache.

    Example:
        >>> recent = RecentRowGroups(lambda group: pa.table({"x": [group]}), max_bytes=16)
        >>> [recent.get(group).column("x").to_pylist() for group in (0, 1, 1, 2, 0)]
        [[0], [1], [1], [2], [0]]
        >>> recent.info()
        CacheInfo(hits=1, reads=4, row_groups=2, held_bytes=16, max_bytes=16)
    """

    def __init__(self, read: Callable[[int], pa.Table], max_bytes: int) -> None:
        self._read = read
        self._max_bytes = max_bytes
        self._tables: collections.OrderedDict[int, pa.Table] = collections.OrderedDict()
        self._requests = self._reads = 0
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """In a forked child, drop unfinished reads, because the threads that run them do not exist in the child."""
        self._lock = threading.Lock()
        self._reading: SingleFlight[int, pa.Table] = SingleFlight()
        self._bytes = sum(table.get_total_buffer_size() for table in self._tables.values())

    def get(self, group: int) -> pa.Table:
        """Return the row group; its shared memory must not be written to.

        Raises:
            Exceptions of `read`, in each thread that waited for the row group; the next call retries.
        """
        with self._lock:
            self._requests += 1
            table = self._cached(group)
        return self._reading.result(group, functools.partial(self._filled, group)) if table is None else table

    def _cached(self, group: int) -> pa.Table | None:
        """Return the row group if it is cached. The caller holds the lock."""
        table = self._tables.get(group)
        if table is not None:
            self._tables.move_to_end(group)
        return table

    def _filled(self, group: int) -> pa.Table:
        with self._lock:
            table = self._cached(group)  # another thread may have read it since `get` looked
            if table is not None:
                return table
            self._reads += 1
        table = self._read(group)
        with self._lock:
            self._tables[group] = table
            self._bytes += table.get_total_buffer_size()
            self._drop_oldest(keep=group)
        return table

    def _drop_oldest(self, *, keep: int) -> None:
        for old in [known for known in self._tables if known != keep]:
            if self._bytes <= self._max_bytes:
                return
            self._bytes -= self._tables.pop(old).get_total_buffer_size()

    def info(self) -> CacheInfo:
        """Return the current counters."""
        with self._lock:
            return CacheInfo(self._requests - self._reads, self._reads, len(self._tables), self._bytes, self._max_bytes)


DEFAULT_CACHE_BYTES = 256 * 1024 * 1024
"""Default maximum bytes of row groups that a process caches for random access."""


class RandomAccess:
    """Random access to rows: row i is the i-th row of an unshuffled reader, with files sorted by path.

    Thread-safe; no lock is held during I/O or decoding. This class does not start threads or keep files open. The
    pickled object does not contain the cache, and a forked child starts with an empty cache and a new filesystem.

    Args:
        dataset: Dataset to read.
        columns: Names, regular expressions over whole names, or fields; None means all.
        cache_bytes: Maximum bytes of memory for row groups that are cached between calls, as encoded cells in Arrow
            tables. The last row group is always cached, even if it is larger.
        max_cell_bytes: Maximum decoded bytes of one cell; a larger cell raises `DecodeError`. None means no limit.
        transform: Function that takes and returns a row as a dict, or a `TransformSpec`. It runs for each requested
            row, at each request.
        selection: Rows that a filter selects; row numbers count only these rows.
        provenance: Whether to add columns with the file, row group and row of each row.

    Raises:
        InvalidArgumentError: An option is invalid; the message names it.

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
        provenance: bool = False,
    ) -> None:
        fields = dataset.fields_of(columns)
        self.dataset = dataset
        """Dataset that is read."""
        self.selection = selection
        """Selected rows; None means all rows."""
        self.cache_bytes = whole_number(cache_bytes, name="cache_bytes", least=0)
        """Maximum bytes of memory for cached row groups."""
        self.max_cell_bytes = Workers(max_cell_bytes=max_cell_bytes).max_cell_bytes
        """Maximum decoded bytes of one cell; None means no limit."""
        self._view = Unischema(f"{dataset.schema.name}_view", fields)
        refuse_large_fields(self._view, self.max_cell_bytes)
        if selection is not None and not isinstance(selection, Selection):
            raise InvalidArgumentError(f"selection must come from petastore.select_rows, got {selection!r:.100}")
        if selection is not None and len(selection.counts) != dataset.inventory.num_row_groups:
            raise InvalidArgumentError(
                f"selection must be made from this version of {dataset.url} with "
                f"{dataset.inventory.num_row_groups:,} row groups, got one of {len(selection.counts):,}. Call "
                "select_rows again"
            )
        workers = Workers("dummy", max_cell_bytes=self.max_cell_bytes)
        spec = as_transform_spec(transform)
        if spec is not None and spec.rng is not None:
            raise InvalidArgumentError(
                f"rng must be None for random access, which has neither seed nor epoch, got {spec.rng!r}. Use "
                "make_reader or ReaderDataset"
            )
        self.transform = described(spec, dataset, selection, self._view, workers=workers, batched=False)
        """Transform of each row; None without a transform."""
        self.provenance = provenance
        """Whether columns with the origin of each row are added."""
        self._made = self._view if self.transform is None else transform_schema(self._view, self.transform)
        self.schema = with_provenance_fields(self._made) if provenance else self._made
        """Output schema: the fields after selection and transform."""
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
        """Selected rows of each row group, shape (groups,)."""
        return self.dataset.inventory.rows if self.selection is None else self.selection.counts

    def __len__(self) -> int:
        """Return the number of selected rows."""
        return int(self._stops[-1]) if len(self._stops) else 0

    def cache_info(self) -> CacheInfo:
        """Return the counters and the size of this process's row-group cache."""
        return self._of_this_process().info()

    def take(self, numbers: ArrayLike) -> dict[str, NDArray[Any]]:
        """Return rows by number, in the requested order; a row may be requested more than once.

        Each row group is read at most once per call, and freed after its cells are copied, unless the cache stores it.

        Args:
            numbers: Integers in [-len(self), len(self)), shape (n,); negative numbers count from the end.

        Returns:
            A dict from column name to array, shape (n, …), as in `petastore.readers.batch.Batch`; the caller owns the
            arrays.

        Raises:
            IndexError: A row number is out of range.
            InvalidArgumentError: `numbers` has more than one dimension.
            DatasetChangedError: A file differs from the inventory.
            DecodeError: A cell does not match its field; the message names column, file, row group and row.
            StorageError: A file cannot be read.
            TransformError: The transform function raised, or returned an invalid result.
        """
        # groups, rows: shape (n,), row group of each row, and number of the row in this row group
        groups, rows = self._places(_one_dimensional(numbers))
        cells = self._cells(groups, rows)
        columns = {field.name: self._decoded(field, cells[field.name], groups, rows) for field in self._view}
        if self.transform is not None:
            calls = np.array([0, len(rows)], dtype=np.int64)
            zones = self.dataset.time_zones if takes_frames(self.transform, batched=False) else {}
            columns = transform_columns(columns, calls, self._made, self.transform, batched=False, zones=zones)
        if self.provenance:
            columns |= places_of_rows(self.dataset.inventory, groups, rows)
        return {name: column.rows(0, len(rows)) for name, column in columns.items()}

    def _places(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        if len(numbers) and numbers.dtype.kind not in "iu":
            raise TypeError(f"row numbers must be ints, got {numbers.dtype}")
        total = len(self)
        outside = (numbers < -total) | (numbers >= total)
        if outside.any():
            raise IndexError(
                f"row number must be at least {-total:,} and below {total:,}, the rows of {self.dataset.url}, "
                f"got {int(numbers[outside][0]):,}"
            )
        numbers = numbers.astype(np.int64)
        numbers[numbers < 0] += total
        # `searchsorted` never returns an empty row group, because its range of numbers is empty.
        groups = np.searchsorted(self._stops, numbers, side="right").astype(np.int32)
        places = numbers - (self._stops[groups] - self.rows[groups])
        return groups, places if self.selection is None else self.selection.rows_at(groups, places)

    def _cells(self, groups: NDArray[np.int32], rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the stored cells of each column, a `pyarrow.Array` of shape (n,), in the requested order."""
        partitions = self._partition_values.items()
        cells = {name: of_groups.take(arrow_numbers(groups)) for name, of_groups in partitions}
        stored = [name for name in self._view.fields if name not in cells]
        if not stored:
            return cells
        if len(groups) == 0:
            return cells | {name: pa.array([], self.dataset.first_footer.columns.read_as(name).type) for name in stored}
        parts = [
            (self._of_this_process().get(group).take(arrow_numbers(rows[where])), where)
            for group, where in places_by_key(groups)
        ]
        back = inverse(np.concatenate([where for _, where in parts]))
        is_in_order = bool((np.diff(back) == 1).all())
        for name in stored:
            joined = concatenate([chunk for part, _ in parts for chunk in part.column(name).chunks])
            cells[name] = joined if is_in_order else joined.take(arrow_numbers(back))
        return cells

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


def _one_dimensional(numbers: ArrayLike) -> NDArray[Any]:
    """Convert row numbers to an array of shape (n,); raise an error if they have more dimensions."""
    try:
        array = np.atleast_1d(np.asarray(numbers))
    except ValueError:  # nested lists of different lengths
        array = None
    if array is None or array.ndim != 1:
        raise InvalidArgumentError(
            f"numbers must be a list of row numbers, such as [3, 0, -1], got {numbers!r:.100}. Pass a list without "
            "nested lists, or an array of shape (n,)"
        )
    return array


def reopened(dataset: Dataset) -> Dataset:
    """Return the same version of a dataset with a new filesystem and footer cache, for use after a fork.

    After a fork, a lock that a thread of the parent held stays locked, and clients of object stores share connections
    and event loops with the parent. Local filesystems do not have these problems. Filesystems that the user wrote in
    Python are not replaced.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}])
        ...     dataset = petastore.open_dataset(folder + "/users")
        >>> reopened(dataset) == dataset, reopened(dataset).footers is dataset.footers
        (True, False)
    """
    location = dataset.location
    kind = str(location.filesystem.type_name)
    if kind != "local" and (kind.startswith("py::fsspec") or not kind.startswith("py::")):
        location = dataclasses.replace(location, filesystem=copy.deepcopy(location.filesystem))
    return dataclasses.replace(dataset, location=location, footers=dataset.footers.emptied())
