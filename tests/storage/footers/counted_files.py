"""In-memory filesystem that records the reads of Parquet files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem

from petastore.storage.files.location import Location, open_location


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue())


TEN = pa.table({"id": list(range(10)), "name": [f"n{number}" for number in range(10)]})


class Counted(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """An in-memory filesystem that records the size of each read."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.read: list[int] = []

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **more: Any) -> Any:
        data = super().cat_file(path, start, end, **more)
        self.read.append(len(data))
        return data


def counted(files: dict[str, bytes]) -> tuple[Location, Counted]:
    filesystem = Counted()
    filesystem.store = {}
    location = open_location("/ds", filesystem=filesystem)
    for path, data in files.items():
        with location.filesystem.open_output_stream(location.join(path)) as stream:
            stream.write(data)
    return location, filesystem
