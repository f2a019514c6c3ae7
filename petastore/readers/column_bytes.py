"""Column bytes: how large some columns are in each row group, from the footers."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.storage.footers.column_chunks import chunk_contents
from petastore.storage.footers.footers import Footer

__all__ = ["column_bytes"]


def column_bytes(dataset: Dataset, columns: Iterable[str]) -> NDArray[np.int64]:
    """Stored bytes of some columns in each row group: what a reader of these columns fetches.

    Reads the footers that were not read yet, with up to 16 threads; an inventory knows whole row groups only.

    Args:
        dataset: Where.
        columns: Names of columns; those that come from directory names take no bytes.

    Returns:
        A new array of shape (row groups,), for `plan.explain(column_bytes=…)`.

    Raises:
        InvalidArgumentError: The dataset has no such column.
        DatasetChangedError: A file is not the one that the inventory describes.
        MetadataError: A footer is damaged.
        StorageError: A file cannot be read.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, petastore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = pa.table({"id": range(1000), "text": ["some longer text"] * 1000})
        ...     pq.write_table(table, folder + "/plain.parquet", row_group_size=500, use_dictionary=False)
        ...     dataset = petastore.open_dataset(folder)
        ...     both, one = (column_bytes(dataset, names) for names in (["id", "text"], ["id"]))
        >>> (both == dataset.inventory.stored_bytes).all(), (one < both).all()
        (np.True_, np.True_)
    """
    names = dict.fromkeys(columns)
    unknown = [name for name in names if name not in dataset.schema]
    if unknown:
        raise InvalidArgumentError(
            f"{dataset.url} has no column {unknown[0]!r}; it has {', '.join(map(repr, dataset.schema.fields))}"
        )
    stored = [name for name in names if name not in dataset.partition_names]
    inventory = dataset.inventory
    sizes = np.zeros(inventory.num_row_groups, dtype=np.int64)
    files = np.unique(inventory.file).tolist() if stored else []
    look = functools.partial(_in_footer, columns=stored)
    for own, of_groups in dataset.footers.look_through(dataset.location, inventory, files, look):
        sizes[own] = of_groups
    return sizes


def _in_footer(footer: Footer, ordinals: NDArray[np.int32], columns: list[str]) -> NDArray[np.int64]:
    """Bytes of some columns in some row groups of a file."""
    leaves = [leaf for name in columns for leaf in footer.leaves.get(name, ())]
    chunks = chunk_contents(footer.encoded, leaves, source=footer.file.path)
    sizes = [sum(group[leaf].stored_bytes for leaf in leaves if leaf in group) for group in chunks]
    if any(not 0 <= size <= footer.file.size for size in sizes):
        raise MetadataError(
            f"{footer.file.path}: the footer says that columns have {min(sizes):,} to {max(sizes):,} bytes"
        )
    return np.array(sizes, dtype=np.int64)[ordinals]
