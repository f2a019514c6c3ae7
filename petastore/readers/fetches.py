"""Stored bytes of each row group's columns, and the storage requests that read them, computed from the footers."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import size_on_disk
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, MetadataError
from petastore.inventory import DataFile
from petastore.plan.report.explanation import Fetches
from petastore.storage.footers.chunk_metadata import chunk_contents
from petastore.storage.footers.footer import Footer
from petastore.storage.ranges.fetch import MAX_CONCURRENCY, coalesce, split_large
from petastore.storage.row_groups.fetched_row_group import row_group_chunks

__all__ = ["column_bytes", "fetches_of"]


def column_bytes(dataset: Dataset, columns: Iterable[str]) -> NDArray[np.int64]:
    """Return the stored bytes of some columns in each row group: the bytes that a reader of these columns fetches.

    The inventory only has the sizes of whole row groups, so this function reads all footers that were not read yet,
    with up to 16 threads.

    Args:
        dataset: The dataset to read.
        columns: Names of columns; hive partition columns count as 0 bytes.

    Returns:
        A new array of shape (row groups,), for `plan.explain(column_bytes=…)`.

    Raises:
        InvalidArgumentError: The dataset has no such column.
        DatasetChangedError: A file differs from the inventory.
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
    stored, inventory = _stored_columns(dataset, columns), dataset.inventory
    sizes = np.zeros(inventory.num_row_groups, dtype=np.int64)
    files = np.unique(inventory.file).tolist() if stored else []
    look = functools.partial(_in_footer, columns=stored)
    for own, of_groups in dataset.footers.look_through(dataset.location, inventory, files, look):
        sizes[own] = of_groups
    return sizes


def _stored_columns(dataset: Dataset, columns: Iterable[str]) -> list[str]:
    """Return the distinct names of the columns that files store; raise an error for unknown names."""
    names = dict.fromkeys(columns)
    unknown = [name for name in names if name not in dataset.schema]
    if unknown:
        raise InvalidArgumentError(
            f"columns must be columns of {dataset.url} ({', '.join(map(repr, dataset.schema.fields))}), got "
            f"{unknown[0]!r}"
        )
    return [name for name in names if name not in dataset.partition_names]


def _in_footer(footer: Footer, ordinals: NDArray[np.int32], columns: list[str]) -> NDArray[np.int64]:
    """Return the total stored bytes of some columns in each given row group of a file, shape (row groups,)."""
    leaves = dict.fromkeys(leaf for name in columns for leaf in footer.leaves.get(name, ()))
    chunks = chunk_contents(footer.encoded, leaves, source=footer.file.path)
    sizes = [sum(group[leaf].stored_bytes for leaf in leaves if leaf in group) for group in chunks]
    if any(not 0 <= size <= footer.file.size for size in sizes):
        raise MetadataError(
            f"{footer.file.path}: the footer is damaged: column sizes must be at least 0 bytes and fit into the file, "
            f"got {min(sizes):,} to {max(sizes):,} bytes"
        )
    return np.array(sizes, dtype=np.int64)[ordinals]


REQUESTS_BEFORE = 1
"""Number of requests that a file of unknown version needs before its row groups are read: one, for the footer."""


def fetches_of(dataset: Dataset, columns: Iterable[str]) -> Fetches:
    """Estimate storage requests and bytes per row group, for `petastore.plan.report.explanation.CostModel`.

    This function reads the footers that were not read yet, with up to 16 threads. The estimate assumes that one task
    reads each row group. The real number of requests differs if several threads read the columns of a large row group,
    or if a file of at most 256 KiB is read whole.

    Args:
        dataset: The dataset to read.
        columns: Names of the columns to read; partition columns from directory names need no request.

    Raises:
        InvalidArgumentError: The dataset has no such column.
        DatasetChangedError: A file differs from the inventory.
        DecodeError: A footer is invalid.
        StorageError: A file cannot be read.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, petastore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = pa.table({"id": range(1000), "more": range(1000)})
        ...     pq.write_table(table, folder + "/x.parquet", row_group_size=500)
        ...     fetches = fetches_of(petastore.open_dataset(folder), ["id", "more"])
        >>> fetches.requests.tolist(), fetches.entries.tolist()
        ([1, 1], [2, 2])
    """
    stored, inventory = _stored_columns(dataset, columns), dataset.inventory

    def of_file(footer: Footer, ordinals: NDArray[np.int32]) -> tuple[tuple[int, int], list[tuple[int, int, int, int]]]:
        before = (0, 0) if footer.version is not None else (REQUESTS_BEFORE, len(footer.encoded))
        return before, [_of_row_group(footer, ordinal, stored) for ordinal in ordinals.tolist()]

    def is_known(file: DataFile) -> bool:
        return bool(file.etag) or file in dataset.kept.versions

    numbers = range(len(inventory.files))
    of_files = [each for _, each in dataset.footers.look_through(dataset.location, inventory, numbers, of_file)]
    # groups: (row groups, 4) requests, bytes, entries and bytes on disk; files: (files, 2) requests and bytes
    groups = _table([one for _, of_groups in of_files for one in of_groups], 4)
    files = _table(
        [(0, 0) if is_known(file) else before for file, (before, _) in zip(inventory.files, of_files, strict=True)], 2
    )
    requests, sizes, entries, on_disk = groups.T
    return Fetches(requests, sizes, entries, on_disk, inventory.file, files[:, 0], files[:, 1])


def _of_row_group(footer: Footer, ordinal: int, columns: list[str]) -> tuple[int, int, int, int]:
    """Return the number of requests for a row group, their bytes, the number of cache entries, and their disk bytes."""
    chunks = sorted(row_group_chunks(footer, ordinal, [columns]).columns)
    requests = split_large(coalesce(chunks), MAX_CONCURRENCY)
    on_disk = sum(size_on_disk(one.length) for one in chunks)
    return len(requests), sum(one.length for one in requests), len(chunks), on_disk


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)
