"""Tests of the known-answer check of pyarrow's decoder: the stored file, and decoders with errors."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from petastore.storage.row_groups.opened_file import CHECKSUMS, checksum_of

ROWS = 300
"""More than one block of 128 values of each vectorized decoder, and not a multiple of 32."""

ENCODINGS = {
    "plain": "PLAIN",
    "delta_binary": "DELTA_BINARY_PACKED",
    "delta_length": "DELTA_LENGTH_BYTE_ARRAY",
    "delta_bytes": "DELTA_BYTE_ARRAY",
    "split": "BYTE_STREAM_SPLIT",
}

WRONG = """
import sys
import pyarrow as pa, pyarrow.compute as pc, pyarrow.parquet as pq
import petastore
from petastore.errors import DecodeError

class Wrong(pq.ParquetReader):
    def read_all(self, *args, **kwargs):
        table = super().read_all(*args, **kwargs)
        number = table.num_columns - 1
        return table.set_column(number, table.schema.field(number), pc.add(table.column(number), 1.0))

if sys.argv[2] == "wrong":
    pq.ParquetReader = Wrong
try:
    print(petastore.open_dataset(sys.argv[1]).to_arrow()["x"].to_pylist())
except DecodeError as problem:
    print(problem)
"""


class KnownColumn(NamedTuple):
    """A column of the file, computed by a formula."""

    name: str
    """Encoding, compression and type, such as `plain-zstd-double-nulls`."""

    values: Any
    """NumPy array of shape (rows,), or a list of bytes for text; arbitrary where it is null."""

    is_null: NDArray[np.bool_] | None
    """Shape (rows,); None without nulls."""

    @property
    def cells(self) -> pa.Array:
        """The column as an Arrow array."""
        return pa.array(self.values, pa.string() if isinstance(self.values, list) else None, mask=self.is_null)


def known_answers() -> Iterator[KnownColumn]:
    """Yield the columns of the file."""
    rows = np.arange(ROWS, dtype=np.uint64)
    mixed = rows * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    null = (mixed >> np.uint64(40)) % np.uint64(7) == 0
    wide = mixed.view(np.int64)
    narrow = wide >> (24 + rows.astype(np.int64) % 40)  # values of 1 to 40 bits
    small = (mixed >> np.uint64(33)).astype(np.int64)
    yield KnownColumn("plain-snappy-int64", wide, None)
    yield KnownColumn("plain-zstd-double-nulls", small / 1024, null)
    yield KnownColumn("plain-lz4-text-nulls", _texts(small, null), null)
    yield KnownColumn("plain-gzip-bool-nulls", small % 3 == 0, null)
    for count, codec in ((2, "snappy"), (6, "zstd"), (30, "lz4"), (200, "gzip"), (1000, "snappy")):
        yield KnownColumn(f"dictionary-{codec}-int32-{count}-nulls", (small % count).astype(np.int32), null)
    yield KnownColumn("dictionary-zstd-text-nulls", _texts(small % 50, null), null)
    yield KnownColumn("delta_binary-zstd-int64", narrow, None)
    yield KnownColumn("delta_binary-snappy-int32-nulls", narrow.astype(np.int32), null)
    yield KnownColumn("delta_length-gzip-text-nulls", _texts(small, null), null)
    yield KnownColumn("delta_bytes-lz4-text-nulls", _texts(np.sort(small % 4000), null), null)
    yield KnownColumn("split-lz4-float-nulls", (small / 1024).astype(np.float32), null)
    yield KnownColumn("split-zstd-double", small / 1024, None)


def _texts(numbers: NDArray[np.int64], is_null: NDArray[np.bool_]) -> list[bytes]:
    texts = zip(numbers.tolist(), is_null.tolist(), strict=True)
    return [b"" if missing else b"%x" % number * (number % 4) for number, missing in texts]


def write_known_answers(path: Path) -> None:
    """Write the package's file of known answers again, after a change of its columns."""
    columns = {column.name: column.cells for column in known_answers()}
    encodings = {name: ENCODINGS[name.split("-")[0]] for name in columns if name.split("-")[0] in ENCODINGS}
    pq.write_table(
        pa.table(columns),
        path,
        compression={name: name.split("-")[1] for name in columns},
        use_dictionary=[name for name in columns if name not in encodings],
        column_encoding=encodings,
        write_page_checksum=True,
        store_schema=False,
    )


def test_stored_checksums_equal_those_of_the_known_values() -> None:
    assert {column.name: checksum_of(column.cells) for column in known_answers()} == CHECKSUMS


def test_file_of_known_values_has_all_encodings_and_compressions(tmp_path: Path) -> None:
    path = tmp_path / "known.parquet"
    write_known_answers(path)
    stored = importlib.resources.files("petastore.storage.row_groups") / "known_answers.parquet"
    with stored.open("rb") as file:
        group, again = pq.ParquetFile(file).metadata.row_group(0), pq.read_metadata(path).row_group(0)
        chunks = [group.column(number) for number in range(group.num_columns)]
        expected = [again.column(number) for number in range(again.num_columns)]
    assert {encoding for chunk in chunks for encoding in chunk.encodings} >= {*ENCODINGS.values(), "RLE_DICTIONARY"}
    assert {chunk.compression for chunk in chunks} == {"SNAPPY", "ZSTD", "LZ4", "GZIP"}
    assert [(one.path_in_schema, one.num_values) for one in chunks] == [
        (one.path_in_schema, one.num_values) for one in expected
    ]


def _run(folder: Path, decoder: str) -> str:
    command = [sys.executable, "-c", WRONG, str(folder), decoder]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_pyarrow_that_decodes_wrongly_raises_and_is_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "0.parquet")
    assert _run(tmp_path, "right") == "[1.0, 2.0]"
    message = _run(tmp_path, "wrong")
    assert f"pyarrow {pa.__version__} (" in message
    assert "decodes Parquet wrongly on this machine: the known values of split-zstd-double differ" in message
