"""Fetches: what each row group of a dataset takes to be fetched by ranges, from the footers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from petastore.cache.entry_file import size_on_disk
from petastore.dataset import Dataset
from petastore.errors import RequestError
from petastore.plan.report.cost import Fetches
from petastore.storage.footers.footers import Footer
from petastore.storage.ranges.coalesced import ByteRange, coalesced, divided
from petastore.storage.ranges.column_chunks import chunk_ranges
from petastore.storage.ranges.fetch import MOST_UNDER_WAY
from petastore.storage.ranges.line import Line
from petastore.storage.requests.at_once import at_once
from petastore.storage.row_groups.decoded_columns import decoded_columns

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
        RequestError: The dataset has no such column.
        DatasetChangedError: A file is not the one that the inventory describes.
        DecodeError: A footer says what cannot be.
        StorageError: A file cannot be read.

    Example:
        >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq, petastore
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     table = pa.table({"id": range(1000), "more": range(1000)})
        ...     pq.write_table(table, folder + "/x.parquet", row_group_size=500)
        ...     fetches = fetches_of(petastore.open_dataset(folder), ["id", "more"])
        >>> fetches.requests.tolist(), fetches.chunks.tolist()
        ([1, 1], [2, 2])
    """
    names = list(dict.fromkeys(columns))
    unknown = [name for name in names if name not in dataset.schema]
    if unknown:
        raise RequestError(f"{dataset.url} has no column {unknown[0]!r}")
    stored = [name for name in names if name not in dataset.partition_names]
    inventory, line = dataset.inventory, line or Line()

    def of_file(number: int) -> tuple[tuple[int, int], list[tuple[int, int, int, int]]]:
        file = inventory.files[number]
        footer = dataset.footers.get(dataset.location, file)
        is_known = footer.version is not None or bool(file.etag) or file in dataset.kept.versions
        before = (0, 0) if is_known else (REQUESTS_BEFORE, len(footer.encoded))
        here = slice(*np.searchsorted(inventory.file, [number, number + 1]).tolist())
        return before, [_of_row_group(footer, ordinal, stored, line) for ordinal in inventory.ordinal[here].tolist()]

    found = list(at_once(of_file, range(len(inventory.files))))
    # groups: (row groups, 4) requests, bytes, chunks and bytes on disk; files: (files, 2) requests and bytes
    groups = _table([one for _, of_groups in found for one in of_groups], 4)
    files = _table([before for before, _ in found], 2)
    requests, sizes, chunks, on_disk = groups.T
    return Fetches(requests, sizes, chunks, on_disk, inventory.file, files[:, 0], files[:, 1])


def _of_row_group(footer: Footer, ordinal: int, columns: list[str], line: Line) -> tuple[int, int, int, int]:
    leaves = dict.fromkeys(leaf for name in columns for leaf in footer.leaves[name])
    of_leaf = chunk_ranges(footer.metadata, ordinal, leaves, footer.file)
    chunks: list[ByteRange] = sorted(set(of_leaf.values()))
    requests = divided(coalesced(chunks, line), line, MOST_UNDER_WAY)
    decoded = decoded_columns(footer, ordinal)
    known = {footer.leaves[name][0]: decoded[name] for name in columns if name in decoded}
    lengths = {one: one.length for one in chunks} | {of_leaf[leaf]: size for leaf, size in known.items()}
    on_disk = sum(map(size_on_disk, lengths.values()))
    return len(requests), sum(one.length for one in requests), len(chunks), on_disk


def _table(rows: list[tuple[int, ...]], columns: int) -> NDArray[np.int64]:
    return np.array(rows, dtype=np.int64).reshape(len(rows), columns)
