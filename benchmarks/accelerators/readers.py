"""DLIO's own readers at their best: its image reader, and the Parquet reader of MLCommons' fork with decoding added.

Both omit one step. For each sample, DLIO 2.0.0 builds a log message that names all files, and discards it unless it
debugs. With thousands of files, this takes most of the time (mlcommons/storage#330 and #337).

The release on PyPI reads no Parquet. The `ParquetReader` of the fork that MLPerf Storage pins
(github.com/mlcommons/DLIO_local_changes) keeps files open and reads the whole row group of a sample with
pyarrow. Then it drops the table and remembers only its size, and since mlcommons/storage#378 it does not decode local
files at all. The reader in this module reads in the same way, and keeps the arrays of the row group for its samples.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from dlio_benchmark.reader.image_reader import ImageReader
from dlio_benchmark.reader.reader_handler import FormatReader

__all__ = ["PictureReader", "RowGroupReader"]


class _Unsaid(dict[int, tuple[str, int]]):
    """Where each sample lies, without a text that names all of them."""

    def __repr__(self) -> str:
        return f"{len(self)} samples"


def _unsaid(reader: FormatReader) -> _Unsaid:
    return _Unsaid(reader.global_index_map)


class PictureReader(ImageReader):  # type: ignore[misc]
    """DLIO's reader of pictures: Pillow opens and decodes a file."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        super().__init__(dataset_type, thread_index, epoch)
        self.global_index_map = _unsaid(self)


class RowGroupReader(FormatReader):  # type: ignore[misc]
    """Samples of Parquet files of fixed-size lists; each worker process of DLIO's torch loader has one."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:
        del epoch
        super().__init__(dataset_type, thread_index)
        self.global_index_map = _unsaid(self)
        self._opened: dict[str, tuple[pq.ParquetFile, list[int]]] = {}
        self._at: tuple[str, int] | None = None
        self._columns: list[np.ndarray[Any, Any]] = []

    def open(self, filename: str) -> tuple[pq.ParquetFile, list[int]]:
        """The file and the first row of each of its row groups; its footer is read once."""
        super().open(filename)
        if filename not in self._opened:
            file = pq.ParquetFile(filename)
            rows = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
            self._opened[filename] = file, list(itertools.accumulate(rows, initial=0))[:-1]
        return self._opened[filename]

    def close(self, filename: str) -> None:
        """Nothing: DLIO asks for it after each sample."""
        super().close(filename)

    def get_sample(self, filename: str, sample_index: int) -> list[np.ndarray[Any, Any]]:
        """The arrays of a row, decoded."""
        super().get_sample(filename, sample_index)
        file, firsts = self.open_file_map[filename]
        group = bisect.bisect_right(firsts, sample_index) - 1
        if self._at != (filename, group):
            self._columns = [_array(column) for column in file.read_row_group(group).columns]
            self._at = filename, group
        return [column[sample_index - firsts[group]] for column in self._columns]

    def next(self) -> Iterator[Any]:
        """Batches in the order of the files."""
        yield from super().next()

    def read_index(self, image_idx: int, step: int) -> Any:
        """One sample; what DLIO hands over is one array of its size, made beforehand."""
        return super().read_index(image_idx, step)

    def finalize(self) -> None:
        """Closes the files."""
        self._opened.clear()

    def is_index_based(self) -> bool:
        """DLIO may ask for samples by number."""
        return True

    def is_iterator_based(self) -> bool:
        """DLIO may ask for all of them."""
        return True


def _array(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    """A column of lists of one size, (rows, size), without a copy."""
    lists = pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
    return lists.flatten().to_numpy(zero_copy_only=True).reshape(len(lists), -1)
