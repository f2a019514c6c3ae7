"""Writes a dataset to HDFS and reads it by several URLs: `python -m tests.storage.files.on_hdfs WRITTEN URL...`.

In a process of its own: a Java that a process has started stays until it ends. Prints as JSON what it read by each URL,
or which error came.
"""

from __future__ import annotations

import json
import sys

import petastore
from petastore.errors import PetastoreError

ROWS = 1000


def main(written: str, *urls: str) -> None:
    schema = petastore.Unischema("Numbers", [petastore.UnischemaField("id", "int64")])
    for mode, first in (("error", 0), ("append", ROWS // 2)):
        rows = ({"id": number} for number in range(first, first + ROWS // 2))
        petastore.write_dataset(written, schema, rows, mode=mode, rows_per_row_group=100)  # type: ignore[arg-type]
    print(json.dumps({url: read(url) for url in urls}))


def read(url: str) -> list[int] | str:
    try:
        with petastore.make_batch_reader(url, seed=0, storage_timeout=60.0) as reader:
            return sorted(number for batch in reader for number in batch.id.tolist())
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"


if __name__ == "__main__":
    main(*sys.argv[1:])
