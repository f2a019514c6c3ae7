"""Row-group indexes: build them once, select row groups by them in every reader.

`build_rowgroup_index` reads a dataset and stores what indexers find; `petastore.selectors` picks row groups by that.
"""

from __future__ import annotations

from petastore.dataset import Dataset
from petastore.indexers import FieldNotNullIndexer, RowGroupIndex, RowGroupIndexerBase, SingleFieldIndexer
from petastore.storage.metadata.find_index import find_indexes
from petastore.writers.row_group_index import build_rowgroup_index

__all__ = [
    "FieldNotNullIndexer",
    "RowGroupIndex",
    "RowGroupIndexerBase",
    "SingleFieldIndexer",
    "build_rowgroup_index",
    "get_row_group_indexes",
]


def get_row_group_indexes(dataset: Dataset) -> dict[str, RowGroupIndex]:
    """The stored indexes of a dataset by name: petastore's own, and those of Petastorm that have other names.

    Args:
        dataset: From `petastore.open_dataset`, or `reader.dataset`.

    Raises:
        InvalidArgumentError: The dataset is a list of files.
        DatasetChangedError: One of them was built from other files.
        MetadataError: One of them is damaged, or newer than this release reads.
        StorageError: The storage refused.

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
