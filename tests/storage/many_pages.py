"""Parquet files with all kinds of pages, and the positions of these pages."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.storage.row_groups.page_headers import read_header


def a_table(rows: int) -> pa.Table:
    """Return a table of many column types, with and without nulls, flat and nested."""
    numbers = range(rows)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "maybe": pa.array([None if n % 3 == 0 else n * 1.5 for n in numbers]),
            "never": pa.array([None] * rows, pa.int64()),
            "word": pa.array([None if n % 4 == 0 else f"w{n % 3}" for n in numbers]),
            "list": pa.array([None if n % 7 == 6 else list(range(n % 4)) for n in numbers], pa.list_(pa.int64())),
            "struct": pa.array([{"a": n, "b": [str(n)] * (n % 3)} for n in numbers]),
            "flag": pa.array([n % 2 == 0 for n in numbers]),
            "long": pa.array(["x" * 900 + str(n) for n in numbers]),
        }
    )


OPTIONS: list[dict[str, Any]] = [
    {"data_page_version": version, "use_dictionary": dictionary, "compression": compression}
    for version, dictionary, compression in itertools.product(["1.0", "2.0"], [True, False], ["none", "zstd"])
]
every_kind = pytest.mark.parametrize("options", OPTIONS, ids=lambda options: " ".join(map(str, options.values())))


def page_places(path: Path) -> Iterator[int]:
    """Return where each page of a file begins."""
    return (at for _, at in pages_of_leaves(path))


def pages_of_leaves(path: Path) -> Iterator[tuple[int, int]]:
    """Return the leaf column of each page of a file, and where the page begins."""
    metadata, data = pq.read_metadata(path), path.read_bytes()
    for group, leaf in itertools.product(range(metadata.num_row_groups), range(metadata.num_columns)):
        column = metadata.row_group(group).column(leaf)
        at = column.dictionary_page_offset or column.data_page_offset
        stop = at + column.total_compressed_size
        while at < stop:
            yield leaf, at
            header, after = read_header(data, at)
            at = after + header[3]
