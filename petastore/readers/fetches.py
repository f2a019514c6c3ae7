"""Fetches: what each row group of a dataset takes to be fetched by ranges, from the footers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import size_on_disk
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.inventory import DataFile
from petastore.plan.report.cost import Fetches
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.coalesced import ByteRange, coalesced, divided
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.fetch import MOST_UNDER_WAY
from petastore.storage.ranges.line import Line
from petastore.storage.row_groups.decoded_columns import kept_chunks

__all__ = ["fetches_of"]

REQUESTS_BEFORE = 1
"""Requests for a file before its first row group, where its version is not known yet: its footer, in one."""


def fetches_of(dataset: Dataset, columns: Iterable[str], *, line: Line | None = None) -> Fetches:
    """What row groups take to be fetched, for `petastore.plan.report.cost.StorageAsk`.

    Reads the footers that were not read yet, with up to 16 threads. One task reads a row group: where several threads
    read different columns of a large one, or files of at most 256 KiB are read whole, there are other requests.

    Args:
        dataset: Where.
        columns: Names of the columns that are read; those that come from directory names take nothing.
        line: What requests cost, which decides which holes are fetched along; None is what is believed at first.

    Raises:
        InvalidArgumentError: The dataset has no such column.
        DatasetChangedError: A file is not the one that the inventory describes.
        DecodeError: A footer says what cannot be.
        StorageError: A file cannot be read.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, petastore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = pa.table({"id": range(1000), "more": range(1000)})
        ...     pq.write_table(table, folder + "/x.parquet", row_group_size=500)
        ...     fetches = fetches_of(petastore.open_dataset(folder), ["id", "more"])
        >>> fetches.requests.tolist(), fetches.entries.tolist()
        ([1, 1], [1, 1])
    """
    names = list(dict.fromkeys(columns))
    unknown = [name for name in names if name not in dataset.schema]
    if unknown:
        raise InvalidArgumentError(f"{dataset.url} has no column {unknown[0]!r}")
    stored = [name for name in names if name not in dataset.partition_names]
    inventory, line = dataset.inventory, line or Line()

    def of_file(footer: Footer, ordinals: NDArray[np.int32]) -> tuple[tuple[int, int], list[tuple[int, int, int, int]]]:
        footer.check_chunks(ordinals.tolist(), [leaf for name in stored for leaf in footer.leaves[name]])
        before = (0, 0) if footer.version is not None else (REQUESTS_BEFORE, len(footer.encoded))
        return before, [_of_row_group(footer, ordinal, stored, line) for ordinal in ordinals.tolist()]

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


def _of_row_group(footer: Footer, ordinal: int, columns: list[str], line: Line) -> tuple[int, int, int, int]:
    columns_of = {leaf: name for name in columns for leaf in footer.leaves[name]}
    of_leaf = chunk_ranges(footer.metadata, ordinal, columns_of, footer.file)
    chunks: list[ByteRange] = sorted(set(of_leaf.values()))
    requests = divided(coalesced(chunks, line), line, MOST_UNDER_WAY)
    kept = kept_chunks(footer, ordinal, columns_of, of_leaf)
    on_disk = sum(size_on_disk(one.size or 0) for one in kept)
    return len(requests), sum(one.length for one in requests), len(kept), on_disk


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)
