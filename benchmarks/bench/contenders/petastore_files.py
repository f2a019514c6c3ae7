"""The dataset that petastore, Petastorm and the limits read: written by petastore, in bytes that Petastorm reads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import petastore
from benchmarks.bench.values import JPEG_QUALITY, Values, crops_of
from benchmarks.bench.workloads import Column, Workload
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec

__all__ = ["PACKAGES", "schema_of", "write"]

PACKAGES = ("petastore", "pyarrow")

_CODECS: Final[dict[str, Callable[[], Any]]] = {
    "array": NdarrayCodec,
    "deflated": CompressedNdarrayCodec,
    "jpeg": lambda: CompressedImageCodec("jpeg", JPEG_QUALITY),
    "png": lambda: CompressedImageCodec("png"),
}


def schema_of(workload: Workload) -> petastore.Unischema:
    """The workload as a Unischema."""
    return petastore.Unischema(workload.name, [_field(name, column) for name, column in workload.columns.items()])


def write(workload: Workload, values: Values, folder: Path) -> None:
    """Writes the dataset; pictures are encoded from their pixels once more, to the same bytes as in `values`."""
    petastore.write_dataset(
        folder, schema_of(workload), _rows(workload, values), rows_per_row_group=workload.row_group, mode="overwrite"
    )


def _rows(workload: Workload, values: Values) -> Iterator[dict[str, Any]]:
    pictures = workload.of_kind("jpeg", "png")
    texts = workload.of_kind("text")
    columns: dict[str, Any] = {
        name: crops_of(name, workload) if name in pictures else iter(values.column(name)) for name in workload.columns
    }
    for _ in range(workload.rows):
        row = {name: next(column) for name, column in columns.items()}
        for name in texts:
            row[name] = row[name].decode()
        yield row


def _field(name: str, column: Column) -> petastore.UnischemaField:
    if column.kind == "text":
        return petastore.UnischemaField(name, str)
    codec = _CODECS.get(column.kind)
    # Petastorm's example leaves two sizes of its array free.
    shape = (None, *column.shape[1:3], None) if name == "array_4d" else column.shape
    return petastore.UnischemaField(name, column.dtype, shape, codec() if codec else None)
