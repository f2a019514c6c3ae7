"""Values of a workload: generated once from fixed seeds, and stored as NumPy files that every contender's writer reads.

Photographs are those of scikit-learn, cut into crops. Making needs petastore's environment; reading needs NumPy alone.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.bench.workloads import Column, Workload

__all__ = ["Values", "crops_of", "make_values"]

_CATEGORIES: Final = 1000
"""Different values of an integer column, as of a categorical feature."""
_CHUNK: Final = 256
_ENCODED: Final = ("jpeg", "png", "text")


class Values:
    """The columns of a workload in row order. Numbers and arrays are memory-mapped; other cells are bytes.

    Args:
        folder: Where `make_values` put them.
        workload: Whose.
    """

    def __init__(self, folder: Path, workload: Workload) -> None:
        self.folder, self.workload = folder, workload

    def column(self, name: str) -> Any:
        """An array `(rows, *shape)`, or of jpeg, png and text: a sequence of bytes."""
        if self.workload.columns[name].kind in _ENCODED:
            return _Cells(self.folder, name)
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Rows as dicts, for formats that are written row by row."""
        columns = {name: self.column(name) for name in self.workload.columns}
        for number in range(self.workload.rows):
            yield {name: column[number] for name, column in columns.items()}


class _Cells:
    def __init__(self, folder: Path, name: str) -> None:
        self._bytes = np.load(folder / f"{name}.cells.npy", mmap_mode="r")
        self._ends = np.load(folder / f"{name}.ends.npy")

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        begin = int(self._ends[number - 1]) if number else 0
        return self._bytes[begin : int(self._ends[number])].tobytes()

    def __iter__(self) -> Iterator[bytes]:
        return (self[number] for number in range(len(self)))


def make_values(workload: Workload, folder: Path) -> None:
    """Writes the columns of a workload."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, column in workload.columns.items():
        if column.kind in _ENCODED:
            cells = _texts(workload, column) if column.kind == "text" else _pictures(name, workload)
            lengths = np.array([len(cell) for cell in cells])
            np.save(folder / f"{name}.cells.npy", np.frombuffer(b"".join(cells), np.uint8))
            np.save(folder / f"{name}.ends.npy", np.cumsum(lengths))
        else:
            np.save(folder / f"{name}.npy", _numbers(name, column, workload.rows))


def crops_of(name: str, workload: Workload) -> Iterator[NDArray[np.uint8]]:
    """The pixels of a column of pictures, row by row: a crop of each photograph in turn."""
    height, width, _ = workload.columns[name].shape
    random = np.random.RandomState(7)
    for number in range(workload.rows):
        photograph = _photographs()[number % 2]
        top = random.randint(photograph.shape[0] - height + 1)
        left = random.randint(photograph.shape[1] - width + 1)
        yield np.ascontiguousarray(photograph[top : top + height, left : left + width])


@functools.cache
def _photographs() -> list[NDArray[np.uint8]]:
    from sklearn.datasets import load_sample_images

    return list(load_sample_images().images)


def _numbers(name: str, column: Column, rows: int) -> NDArray[Any]:
    if column.kind == "key":
        return np.arange(rows, dtype=column.dtype)
    # The streams of RandomState never change. The seed is computed from the column's name, so that columns differ.
    random = np.random.RandomState(zlib.crc32(name.encode()))
    shape = (rows, *column.shape)
    if column.dtype == "float32":
        return np.concatenate(
            [random.standard_normal((len(part), *column.shape)).astype("float32") for part in _parts(rows)]
        )
    return random.randint(0, 256 if column.dtype == "uint8" else _CATEGORIES, shape).astype(column.dtype)


def _texts(workload: Workload, column: Column) -> list[bytes]:
    random = np.random.RandomState(11)
    words = [
        "".join(chr(97 + letter) for letter in random.randint(0, 26, size)) for size in random.randint(2, 10, 4096)
    ]
    length = column.shape[0]
    return [
        " ".join(words[word] for word in random.randint(0, len(words), length // 3))[:length].encode()
        for _ in range(workload.rows)
    ]


def _pictures(name: str, workload: Workload) -> list[bytes]:
    from benchmarks.bench.schema import schema_of

    field, crops = schema_of(workload)[name], crops_of(name, workload)
    assert field.codec is not None, "pictures have a codec"
    cells: list[bytes] = []
    for part in _parts(workload.rows):
        cells += field.codec.encode_column([next(crops) for _ in part], field).to_pylist()
    return cells


def _parts(rows: int) -> Iterator[range]:
    return (range(first, min(first + _CHUNK, rows)) for first in range(0, rows, _CHUNK))
