"""Build row-group indexes: each row group is read once, its indexed fields are decoded, and indexers look at them."""

from __future__ import annotations

import copy
import functools
import logging
import operator
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, PetastoreError, TransformError
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, RowGroupIndexerBase
from petastore.readers.by_number.random_access import RandomAccess
from petastore.schema import Unischema
from petastore.schema.values import each_value
from petastore.storage.metadata.row_group_index import write_indexes
from petastore.work.workers import Workers

__all__ = ["build_rowgroup_index", "checked_indexers"]

_log = logging.getLogger(__name__)


def build_rowgroup_index(
    dataset_url: str | os.PathLike[str],
    spark_context: Any = None,
    indexers: Sequence[RowGroupIndexerBase] = (),
    hdfs_driver: str | None = None,
    *,
    workers_count: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> None:
    """Build indexes of a dataset and store them in it, each in place of the one of that name.

    Row groups are read in parallel by threads of this process; only the fields that indexers look at are. Afterwards
    the indexes hold for exactly this version of the data: when files are added, rewritten or deleted they are refused
    until they are built again.

    Args:
        dataset_url: A directory: petastore's dataset, Petastorm's, or plain Parquet.
        spark_context: Accepted, because Petastorm needs it, and not used.
        indexers: What to look for, with names of their own; they stay as they are.
        hdfs_driver: Accepted and not used.
        workers_count: Row groups that are read at a time; None is one for each CPU that the process may use.
        storage_options: Passed to the fsspec filesystem of the URL's scheme.
        filesystem: A pyarrow or fsspec filesystem to use instead.

    Raises:
        InvalidArgumentError: There is no indexer, two share a name, one looks at a field that there is not or found a
            value that cannot be stored, or the URL names single files.
        DecodeError: A cell is not what its field declares.
        TransformError: A user's indexer raised.
        StorageError: The storage refused.

    Example:
        >>> import tempfile, petastore
        >>> from petastore.indexing import SingleFieldIndexer, get_row_group_indexes
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("city", "str")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     cities = [{"city": "Oslo"}, {"city": "Rome"}, {"city": "Oslo"}]
        ...     _ = petastore.write_dataset(folder + "/users", schema, cities, rows_per_row_group=1)
        ...     build_rowgroup_index(folder + "/users", indexers=[SingleFieldIndexer("by_city", "city")])
        ...     found = get_row_group_indexes(petastore.open_dataset(folder + "/users"))
        >>> found["by_city"].get_row_group_indexes("Oslo")
        {0, 2}
    """
    del spark_context, hdfs_driver
    dataset = open_dataset(dataset_url, storage_options=storage_options, filesystem=filesystem)
    if dataset.location.paths is not None:
        raise InvalidArgumentError(f"row-group indexes belong to whole datasets, but {dataset.url} names single files")
    given = copy.deepcopy(checked_indexers(indexers, dataset.schema, dataset.url))
    if not given:
        raise InvalidArgumentError("indexers is empty; give at least one, such as SingleFieldIndexer('by_id', 'id')")
    found = list(given)
    for of_group in _built(dataset, given, Workers(count=workers_count)):
        found = [_called(total, operator.add, total, part) for total, part in zip(found, of_group, strict=True)]
    indexes = [_stored(indexer) for indexer in found]
    write_indexes(dataset.location, dataset.inventory, indexes)
    _log.info("stored %r of %s", indexes, dataset.url)


def checked_indexers(indexers: Iterable[Any], schema: Unischema, url: str) -> list[Any]:
    """The indexers, all of which can look at a dataset.

    Raises:
        InvalidArgumentError: One is none, two share a name, or one looks at a field that there is not.
    """
    if isinstance(indexers, RowGroupIndexerBase) or not isinstance(indexers, Iterable):
        raise InvalidArgumentError(f"indexers is a list of indexers, not {indexers!r:.80}")
    given, names = list(indexers), set()
    for indexer in given:
        if isinstance(indexer, type) or not callable(getattr(indexer, "build_index", None)):
            raise InvalidArgumentError(f"{indexer!r:.80} is no indexer; derive it from RowGroupIndexerBase")
        if indexer.index_name in names:
            raise InvalidArgumentError(
                f"two of the indexers are named {indexer.index_name!r}; names tell indexes apart"
            )
        names.add(indexer.index_name)
        for column in indexer.column_names:
            if column not in schema:
                known = ", ".join(map(repr, schema.fields))
                raise InvalidArgumentError(f"{indexer!r:.80} looks at the field {column!r}, but {url} has {known}")
    return given


def _built(dataset: Dataset, indexers: list[Any], workers: Workers) -> Iterator[list[Any]]:
    """Of each row group: copies of the indexers that have seen it."""
    names = dict.fromkeys(name for indexer in indexers for name in indexer.column_names)
    cells = RandomAccess(dataset, [dataset.schema[name] for name in names], cache_bytes=0)
    stops = np.cumsum(dataset.inventory.rows)
    empty = copy.deepcopy(indexers)
    pool = workers.pool()
    waiting: deque[Any] = deque()
    try:
        for group, (rows, stop) in enumerate(zip(dataset.inventory.rows.tolist(), stops.tolist(), strict=True)):
            if rows:
                task = functools.partial(_look, cells, group, range(stop - rows, stop), empty)
                waiting.append(pool.submit(task, priority=group))
            if len(waiting) > pool.workers:
                yield waiting.popleft().result()
        for built in waiting:
            yield built.result()
    finally:
        pool.close()
        pool.join()


def _look(cells: RandomAccess, group: int, rows: range, empty: list[Any]) -> list[Any]:
    columns = cells.take(np.arange(rows.start, rows.stop))
    built = copy.deepcopy(empty)
    values = {name: each_value(column) for name, column in columns.items()}
    for indexer in built:
        batch = getattr(indexer, "build_index_batch", None)
        if callable(batch):
            _called(indexer, batch, columns, group)
        else:
            own = {name: values[name] for name in indexer.column_names}
            decoded = [{name: of_name[row] for name, of_name in own.items()} for row in range(len(rows))]
            _called(indexer, indexer.build_index, decoded, group)
    return built


def _called(indexer: Any, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except PetastoreError:
        raise
    except Exception as problem:
        name = f"{type(indexer).__name__} of the index {indexer.index_name!r}"
        raise TransformError(f"the indexer {name} raised {type(problem).__name__}: {problem}") from problem


def _stored(indexer: Any) -> RowGroupIndex:
    name, columns = indexer.index_name, tuple(indexer.column_names)
    if isinstance(indexer, FieldNotNullIndexer):
        return RowGroupIndex(name, columns, None, [sorted(indexer.get_row_group_indexes())])
    values = indexer.indexed_values
    return RowGroupIndex(name, columns, values, [sorted(indexer.get_row_group_indexes(value)) for value in values])
