"""Dataset with an image, an array, text and nulls, and functions that damage its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import petastore
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.indexing import SingleFieldIndexer, build_rowgroup_index

__all__ = ["PART", "dataset", "edit_footer", "flip", "plain"]

PART = "part-00001-"

SCHEMA = petastore.Unischema(
    "frames",
    [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("word", "str", nullable=True),
        petastore.UnischemaField("pose", "float32", (3, 2), NdarrayCodec()),
        petastore.UnischemaField("photo", "uint8", (8, 8, 3), CompressedImageCodec("png")),
    ],
)


def dataset(folder: Path) -> list[Path]:
    """Write 3 files with 2 row groups of 5 rows each, and an index; return the files."""
    rows = [
        {
            "id": number,
            "word": None if number % 4 == 0 else f"word {number}",
            "pose": np.full((3, 2), number, "float32"),
            "photo": np.full((8, 8, 3), number, "uint8"),
        }
        for number in range(30)
    ]
    petastore.write_dataset(folder, SCHEMA, rows, rows_per_row_group=5, rows_per_file=10)
    build_rowgroup_index(folder, indexers=[SingleFieldIndexer("by_word", "word")])
    return sorted(folder.glob("*.parquet"))


def plain(folder: Path) -> Path:
    """Write one file of plain Parquet, with statistics; return it."""
    folder.mkdir(exist_ok=True)
    columns = {"id": pa.array(range(1000, 1009)), "word": pa.array([None, "a", None, "b", None, "c", None, "d", None])}
    pq.write_table(pa.table(columns), folder / "0.parquet", write_page_checksum=True)
    return folder / "0.parquet"


def flip(path: Path, at: int) -> None:
    """Invert a byte of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def edit_footer(path: Path, edit: Callable[[bytes], bytes]) -> None:
    """Replace bytes of the footer, keeping its length."""
    data = path.read_bytes()
    start = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    edited = edit(data[start:])
    assert len(edited) == len(data) - start
    assert edited != data[start:]
    path.write_bytes(data[:start] + edited)
