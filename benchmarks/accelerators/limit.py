"""Upper bound of throughput: one process reads row groups with pyarrow and decodes them, with one thread per CPU.

It makes no batches, and reads in the order of the files. The files are those that petastore reads.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["PlainFolder", "rate_of"]


_AHEAD: Final = 8


class PlainFolder:
    """The row groups of a folder of Parquet files, decoded.

    Args:
        folder: Where the files are.
    """

    def __init__(self, folder: Path) -> None:
        paths = sorted(folder.glob("*.parquet"))
        self._tasks = [(path, number) for path in paths for number in range(pq.read_metadata(path).num_row_groups)]
        self._own = threading.local()
        self._threads = len(os.sched_getaffinity(0))

    def decoded(self, epochs: int = 1) -> Iterator[tuple[int, Any]]:
        """Each row group in the order of the files, epoch after epoch without a break: its rows, and what was decoded.

        Eight for each thread are ahead: with two, steps of three and of four row groups wait for each other.
        """
        ahead: collections.deque[Future[tuple[int, Any]]] = collections.deque()
        with ThreadPoolExecutor(self._threads) as pool:
            for task in self._tasks * epochs:
                ahead.append(pool.submit(self._decode, *task))
                if len(ahead) > _AHEAD * self._threads:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()

    def _decode(self, path: Path, number: int) -> tuple[int, Any]:
        own = self._own
        if getattr(own, "path", None) != path:
            own.path, own.file = path, pq.ParquetFile(path, memory_map=True)
        table = own.file.read_row_group(number, use_threads=False)
        decoded = [_pictures(column) if pa.types.is_binary(column.type) else column for column in table.columns]
        return int(table.num_rows), decoded


def rate_of(folder: Path) -> float:
    """Rows a second, over one pass of all row groups of a folder, which are dropped."""
    plain = PlainFolder(folder)
    began = time.perf_counter()
    rows = sum(rows for rows, _ in plain.decoded())
    return rows / (time.perf_counter() - began)


def _pictures(column: pa.ChunkedArray) -> list[Any]:
    import simplejpeg

    return [simplejpeg.decode_jpeg(np.frombuffer(cell.as_buffer(), np.uint8), "GRAY") for cell in column]
