"""Upper bounds of this machine on two threads: only decode the data, without batches, order or delivery.

Parquet is decoded row group by row group with pyarrow. Pictures are decoded by the codec's own library. Tensors are
read as a fixed-size list column, the fastest way to store them in Parquet that pyarrow knows. Deflated tensors are
inflated with zlib, and nothing else.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.bench.values import Values
from benchmarks.bench.workloads import Workload

__all__ = ["PACKAGES", "batches", "write"]

PACKAGES = ("pyarrow", "numpy", "simplejpeg", "opencv-python-headless")
_THREADS = 2
_CELLS_A_TASK = 64

Task = Callable[[], int]


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Two files of pyarrow's: fixed-size lists stored as fast as they can be, and columns by its default settings."""
    folder.mkdir(parents=True, exist_ok=True)
    if workload.name == "tensors":
        size = int(np.prod(workload.columns["tensor"].shape))
        kind = pa.list_(pa.field("element", pa.float32(), nullable=False), size)
        schema = pa.schema([pa.field("tensor", kind, nullable=False), pa.field("label", pa.int64(), nullable=False)])
        _write(workload, values, folder / "lists.parquet", schema, compression="none", use_dictionary=False)
    if not workload.of_kind("jpeg", "png", "deflated"):
        _write(workload, values, folder / "defaults.parquet", None)


def _write(workload: Workload, values: Values, path: Path, schema: pa.Schema | None, **options: Any) -> None:
    columns = {name: values.column(name) for name in workload.columns}
    table = pa.table({name: _array(column) for name, column in columns.items()})
    table = table if schema is None else table.cast(schema)
    pq.write_table(table, path, row_group_size=workload.row_group, **options)


def _array(column: Any) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return pa.array(column, pa.binary()).cast(pa.string())
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    return flat if column.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, int(np.prod(column.shape[1:])))


def batches(workload: Workload, folder: Path, *, defaults: bool = False) -> Iterator[int]:
    """Numbers of rows, as they are done; `defaults` reads the file that pyarrow writes by its default settings."""
    if defaults:
        tasks = _reads(folder / "defaults.parquet", None)
    else:
        tasks = _TASKS.get(workload.name, _row_groups)(workload, folder)
    with ThreadPoolExecutor(_THREADS) as pool:
        while True:
            yield from pool.map(lambda task: task(), tasks)


def _row_groups(workload: Workload, folder: Path, then: Callable[[pa.Table], Any] | None = None) -> list[Task]:
    del workload
    return [task for path in _files(folder.parent / "petastore") for task in _reads(path, then)]


def _reads(path: Path, then: Callable[[pa.Table], Any] | None) -> list[Task]:
    return [functools.partial(_read, path, number, then) for number in range(pq.read_metadata(path).num_row_groups)]


def _read(path: Path, number: int, then: Callable[[pa.Table], Any] | None) -> int:
    table = _opened(path, threading.get_ident()).read_row_group(number, use_threads=False)
    if then is not None:
        then(table)
    return int(table.num_rows)


@functools.cache
def _opened(path: Path, thread: int) -> pq.ParquetFile:
    """Each thread has its own: a file is read by one at a time."""
    del thread
    return pq.ParquetFile(path, memory_map=True)


def _fixed_size_lists(workload: Workload, folder: Path) -> list[Task]:
    del workload
    return _reads(folder / "lists.parquet", None)


def _jpegs(workload: Workload, folder: Path) -> list[Task]:
    import simplejpeg

    cells, shape = _cells(folder, "image"), workload.columns["image"].shape

    def decode(part: Sequence[bytes]) -> int:
        out = np.empty((len(part), *shape), np.uint8)
        for cell, place in zip(part, out, strict=True):
            simplejpeg.decode_jpeg(cell, "RGB", buffer=place)
        return len(part)

    return [functools.partial(decode, part) for part in _parted(cells)]


def _inflated(workload: Workload, folder: Path) -> list[Task]:
    header = 128
    size = header + int(np.prod(workload.columns["tensor"].shape)) * 4
    streams = [_deflate_stream(cell) for cell in _cells(folder, "tensor")]

    def inflate(part: Sequence[bytes]) -> int:
        for stream in part:
            assert len(zlib.decompress(stream, -15, size)) == size
        return len(part)

    return [functools.partial(inflate, part) for part in _parted(streams)]


def _deflate_stream(cell: bytes) -> bytes:
    """What follows the header of the one member of a zip file."""
    name, extra = (int.from_bytes(cell[at : at + 2], "little") for at in (26, 28))
    return cell[30 + name + extra :]


def _pngs(workload: Workload, folder: Path) -> list[Task]:
    import cv2

    def decode(table: pa.Table) -> None:
        for cell in table["image1"]:
            cv2.imdecode(np.frombuffer(cell.as_buffer(), np.uint8), cv2.IMREAD_COLOR)

    return _row_groups(workload, folder, decode)


def _cells(folder: Path, name: str) -> list[bytes]:
    return [
        cell
        for path in _files(folder.parent / "petastore")
        for cell in pq.read_table(path, columns=[name])[name].to_pylist()
    ]


def _parted(cells: list[bytes]) -> Iterator[list[bytes]]:
    return (cells[first : first + _CELLS_A_TASK] for first in range(0, len(cells), _CELLS_A_TASK))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.parquet"))


_TASKS: dict[str, Callable[[Workload, Path], list[Task]]] = {
    "tensors": _fixed_size_lists,
    "images": _jpegs,
    "compressed": _inflated,
    "hello_world": _pngs,
}
