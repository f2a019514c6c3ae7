"""Build row-group indexes: decode the indexed fields, and run the indexers."""

from __future__ import annotations

import copy
import logging
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from petastore.dataset import Dataset, open_dataset
from petastore.errors import InvalidArgumentError, PetastoreError, TransformError
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, RowGroupIndexerBase
from petastore.readers.random_access import RandomAccess
from petastore.schema import Unischema
from petastore.schema.values import each_value
from petastore.storage.metadata.row_group_index import write_indexes
from petastore.work.futures import in_order
from petastore.work.pools import Workers

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
    """Build row-group indexes, and store them in the dataset.

    Existing indexes with the same names are replaced.

    Threads of this process read the indexed fields, several row groups in parallel. An index is valid for one version
    of the data: after files have changed, using it raises an error until you build it again.

    Args:
        dataset_url: A directory: a dataset of petastore or Petastorm, or plain Parquet.
        spark_context: Ignored; a parameter of Petastorm's function.
        indexers: The indexers, with distinct names; they are not modified.
        hdfs_driver: Ignored; a parameter of Petastorm's function.
        workers_count: Number of row groups to read in parallel; None means one per CPU that the process may use.
        storage_options: Keyword arguments for the fsspec filesystem that the URL selects.
        filesystem: A pyarrow or fsspec filesystem, used instead of the one that the URL selects.

    Raises:
        InvalidArgumentError: `indexers` is empty, two indexers have the same name, an indexed field is unknown, an
            indexed value cannot be stored, or the URL names single files.
        DecodeError: A cell cannot be decoded.
        TransformError: A user's indexer raised.
        StorageError: A storage operation failed.

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
        raise InvalidArgumentError(
            "dataset_url must be a directory, because indexes belong to whole datasets, got single files of "
            f"{dataset.url}"
        )
    given = copy.deepcopy(checked_indexers(indexers, dataset.schema, dataset.url))
    if not given:
        raise InvalidArgumentError(
            "indexers must have at least one indexer, such as SingleFieldIndexer('by_id', 'id'), got none"
        )
    found = list(given)
    for of_group in _built(dataset, given, Workers(count=workers_count)):
        found = [_called(total, operator.add, total, part) for total, part in zip(found, of_group, strict=True)]
    indexes = [_stored(indexer) for indexer in found]
    write_indexes(dataset.location, dataset.inventory, indexes)
    _log.info("stored %r of %s", indexes, dataset.url)


def checked_indexers(indexers: Iterable[Any], schema: Unischema, url: str) -> list[Any]:
    """Check indexers against a schema, and return them as a list.

    Raises:
        InvalidArgumentError: An item is not an indexer, two have the same name, or a field is unknown.
    """
    if isinstance(indexers, RowGroupIndexerBase) or not isinstance(indexers, Iterable):
        raise InvalidArgumentError(f"indexers must be a list of indexers, got {indexers!r:.80}")
    given, names = list(indexers), set()
    for indexer in given:
        if isinstance(indexer, type) or not callable(getattr(indexer, "build_index", None)):
            raise InvalidArgumentError(f"indexers must be derived from RowGroupIndexerBase, got {indexer!r:.80}")
        if indexer.index_name in names:
            raise InvalidArgumentError(f"indexers must have distinct names, got {indexer.index_name!r} twice")
        names.add(indexer.index_name)
        for column in indexer.column_names:
            if column not in schema:
                known = ", ".join(map(repr, schema.fields))
                raise InvalidArgumentError(
                    f"indexers must use fields of {url} ({known}), got {column!r} in {indexer!r:.80}"
                )
    return given


def _built(dataset: Dataset, indexers: list[Any], workers: Workers) -> Iterator[list[Any]]:
    """Yield copies of the indexers for each row group that has rows.

    The copies contain only the values of this row group.
    """
    names = dict.fromkeys(name for indexer in indexers for name in indexer.column_names)
    cells = RandomAccess(dataset, [dataset.schema[name] for name in names], cache_bytes=0)
    stops = np.cumsum(dataset.inventory.rows)
    empty = copy.deepcopy(indexers)
    rows = dataset.inventory.rows.tolist()
    groups = [(group, range(stop - rows[group], stop)) for group, stop in enumerate(stops.tolist()) if rows[group]]
    pool = workers.pool()
    try:
        for _, built in in_order(lambda of_group: _look(cells, *of_group, empty), groups, pool):
            yield built
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
