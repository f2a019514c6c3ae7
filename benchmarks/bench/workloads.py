"""Workloads: their fields, numbers of rows and batch sizes.

Read by contenders in environments of their own, so it needs nothing but Python.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Final

__all__ = ["JPEG_QUALITY", "WORKLOADS", "Column", "Workload", "workload_named"]

JPEG_QUALITY: Final = 90
"""Of 1 to 100."""


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a workload."""

    kind: str
    """`"number"`, `"key"` (the row's number), `"array"`, `"deflated"` (an array, compressed in the file), `"jpeg"`,
    `"png"` or `"text"`."""

    dtype: str = "uint8"
    shape: tuple[int, ...] = ()
    """Of one value; of a text, its length."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """What every contender reads."""

    name: str
    rows: int
    batch: int
    row_group: int
    """Rows of a row group, for formats that have them."""

    columns: Mapping[str, Column]
    what: str
    """For the page."""

    @property
    def key(self) -> str:
        """The column that holds the number of the row."""
        return next(name for name, column in self.columns.items() if column.kind == "key")

    def of_kind(self, *kinds: str) -> list[str]:
        """Names of the columns of these kinds."""
        return [name for name, column in self.columns.items() if column.kind in kinds]

    def scaled(self, scale: float) -> Workload:
        """The same with fewer rows, at least two batches, and as many row groups."""
        rows = max(2 * self.batch, round(self.rows * scale))
        return dataclasses.replace(self, rows=rows, row_group=max(1, round(self.row_group * rows / self.rows)))


_KEY: Final = {"label": Column("key", "int64")}
_FLOATS: Final = {f"f{n}": Column("number", "float32") for n in range(16)}
_INTEGERS: Final = {f"i{n}": Column("number", "int64") for n in range(8)}
_WIDE: Final = {
    **{f"f{n:03}": Column("number", "float32") for n in range(500)},
    **{f"i{n:03}": Column("number", "int64") for n in range(499)},
}
_TENSOR: Final = ("float32", (64, 32))
_HELLO: Final = {
    "id": Column("key", "int32"),
    "image1": Column("png", "uint8", (128, 256, 3)),
    "array_4d": Column("array", "uint8", (4, 128, 30, 3)),
}

WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload("tabular", 1_000_000, 1024, 50_000, {**_FLOATS, **_INTEGERS, **_KEY},
                 "1,000,000 rows of 16 float32, 8 int64 and a label; row groups of 50,000; batches of 1,024"),
        Workload("images", 4096, 64, 256, {"image": Column("jpeg", "uint8", (256, 256, 3)), **_KEY},
                 "4,096 JPEG crops of 256 × 256 × 3, quality 90; row groups of 256; batches of 64"),
        Workload("tensors", 40_000, 256, 1000, {"tensor": Column("array", *_TENSOR), **_KEY},
                 "40,000 float32 tensors of 64 × 32; row groups of 1,000; batches of 256"),
        Workload("compressed", 40_000, 256, 1000, {"tensor": Column("deflated", *_TENSOR), **_KEY},
                 "The same tensors, deflated; row groups of 1,000; batches of 256"),
        Workload("wide", 40_000, 256, 5000, {**_WIDE, **_KEY},
                 "40,000 rows of 500 float32 and 500 int64 columns; row groups of 5,000; batches of 256"),
        Workload("text", 400_000, 1024, 20_000, {"text": Column("text", "str", (200,)), **_KEY},
                 "400,000 strings of 200 bytes and a label; row groups of 20,000; batches of 1,024"),
        Workload("hello_world", 2048, 32, 128, _HELLO,
                 "2,048 rows of Petastorm's example schema: id, a PNG of 128 × 256 × 3, a uint8 array of "
                 "4 × 128 × 30 × 3; row groups of 128; batches of 32"),
        Workload("rows", 200_000, 1024, 20_000, {"f0": Column("number", "float32"), "i0": Column("number", "int64"),
                                                 **_KEY},
                 "200,000 rows of a float32, an int64 and a label, handed over row by row"),
    )
}  # fmt: skip


def workload_named(name: str, scale: float = 1.0) -> Workload:
    """A workload, or a part of it."""
    return WORKLOADS[name] if scale == 1.0 else WORKLOADS[name].scaled(scale)
