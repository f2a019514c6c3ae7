"""Write a dataset to HDFS and read it by several URLs: `python -m tests.storage.files.on_hdfs WRITTEN URL...`.

It runs in its own process, because a Java that a process has started runs until that process ends. Prints JSON: the
rows or the error of each URL, and as `"rewritten"` the error of a file that is rewritten while it is read.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import petastore
from petastore.errors import PetastoreError
from petastore.inventory import ReadUnit
from petastore.storage.files.location import open_location

ROWS = 1000
LONG = 100_000
"""Rows of a file that is too large to be read whole at once."""


def main(written: str, *urls: str) -> None:
    schema = petastore.Unischema("Numbers", [petastore.UnischemaField("id", "int64")])
    for mode, first in (("error", 0), ("append", ROWS // 2)):
        rows = ({"id": number} for number in range(first, first + ROWS // 2))
        petastore.write_dataset(written, schema, rows, mode=mode, rows_per_row_group=100)  # type: ignore[arg-type]
    print(json.dumps({**{url: read(url) for url in urls}, "rewritten": rewritten(f"{written}-rewritten")}))


def read(url: str) -> list[int] | str:
    try:
        with petastore.make_batch_reader(url, seed=0, storage_timeout=60.0) as reader:
            return sorted(number for batch in reader for number in batch.id.tolist())
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"


def rewritten(url: str) -> str:
    for first in (0, LONG):
        put(url, first)
        if not first:
            dataset = petastore.open_dataset(url)
            units = [ReadUnit(group, dataset.inventory.files[0], group, (0, LONG // 2), ("id",)) for group in (0, 1)]
            assert dataset.read(units[0]).column("id").to_pylist() == list(range(LONG // 2))
    try:
        return f"rows from {dataset.read(units[1]).column('id')[0]}"
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"


def put(url: str, first: int) -> None:
    """Write a file without checksums, whose size and footer do not depend on its values."""
    location = open_location(url)
    path, files = location.join("a.parquet"), location.filesystem
    table = pa.table({"id": np.arange(first, first + LONG)})
    before = files.get_file_info(path).mtime
    while files.get_file_info(path).mtime == before:  # HDFS has an mtime in whole seconds
        with files.open_output_stream(path) as sink:
            pq.write_table(
                table, sink, row_group_size=LONG // 2, compression="none", use_dictionary=False, write_statistics=False
            )


if __name__ == "__main__":
    main(*sys.argv[1:])
