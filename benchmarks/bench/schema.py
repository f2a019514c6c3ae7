"""Convert a workload to a petastore schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import petastore
from benchmarks.bench.workloads import JPEG_QUALITY, Column, Workload
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec

__all__ = ["schema_of"]

_CODECS: Final[dict[str, Callable[[], Any]]] = {
    "array": NdarrayCodec,
    "deflated": CompressedNdarrayCodec,
    "jpeg": lambda: CompressedImageCodec("jpeg", JPEG_QUALITY),
    "png": lambda: CompressedImageCodec("png"),
}


def schema_of(workload: Workload) -> petastore.Unischema:
    """The workload as a Unischema."""
    return petastore.Unischema(workload.name, [_field(name, column) for name, column in workload.columns.items()])


def _field(name: str, column: Column) -> petastore.UnischemaField:
    if column.kind == "text":
        return petastore.UnischemaField(name, str)
    codec = _CODECS.get(column.kind)
    # Petastorm's example leaves two sizes of its array free.
    shape = (None, *column.shape[1:3], None) if name == "array_4d" else column.shape
    return petastore.UnischemaField(name, column.dtype, shape, codec() if codec else None)
