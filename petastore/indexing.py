"""Row-group indexes: build an index once; readers select row groups by it.

`build_rowgroup_index` reads a dataset with indexers and stores an index. `petastore.selectors` selects row groups by
this index.
"""

from __future__ import annotations

from petastore.dataset import Dataset
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, RowGroupIndexerBase, SingleFieldIndexer
from petastore.storage.metadata.row_group_index import find_indexes
from petastore.writers.index_builder import build_rowgroup_index

__all__ = [
    "FieldNotNullIndexer",
    "RowGroupIndex",
    "RowGroupIndexerBase",
    "SingleFieldIndexer",
    "build_rowgroup_index",
    "get_row_group_indexes",
]


def get_row_group_indexes(dataset: Dataset) -> dict[str, RowGroupIndex]:
    """Return the stored row-group indexes of a dataset, as a dict from name to index.

    Args:
        dataset: A dataset from `petastore.open_dataset`, or `reader.dataset`.

    Raises:
        InvalidArgumentError: The dataset is a list of files, which has no stored indexes.
        DatasetChangedError: Files have changed since an index was built.
        MetadataError: An index is damaged, or newer than this release.
        StorageError: A storage operation failed.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/users", schema, [{"id": 1}, {"id": 2}])
        ...     build_rowgroup_index(folder + "/users", indexers=[SingleFieldIndexer("by_id", "id")])
        ...     get_row_group_indexes(petastore.open_dataset(folder + "/users"))
        {'by_id': RowGroupIndex('by_id' of 'id', 2 values)}
    """
    return find_indexes(dataset.location, dataset.inventory)
