"""Tests of Parquet writer options per column: dictionaries, statistics and compression."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec, NdarrayCodec
from petastore.errors import InvalidArgumentError
from petastore.schema import Unischema, UnischemaField
from petastore.writers.encode import encode_rows
from petastore.writers.parquet import COMPRESSIONS, Compression, writer_options

SCHEMA = Unischema(
    "all",
    [
        UnischemaField("id", "int64"),
        UnischemaField("a.b", "str", nullable=True),
        UnischemaField("weight", "float32"),
        UnischemaField("vector", "float64", (2,)),
        UnischemaField("codes", "int32", (2,)),
        UnischemaField("price", Decimal),
        UnischemaField("image", "uint8", (4, 4, 3), CompressedImageCodec("png")),
        UnischemaField("array", "int16", (2,), NdarrayCodec()),
        UnischemaField("packed", "int16", (2,), CompressedNdarrayCodec()),
    ],
)
ROW = {
    "id": 1, "a.b": "x", "weight": 0.5, "vector": np.zeros(2), "codes": np.zeros(2, np.int32), "price": Decimal(1),
    "image": np.zeros((4, 4, 3), np.uint8), "array": np.zeros(2, np.int16), "packed": np.zeros(2, np.int16),
}  # fmt: skip


def chunks(compression: Compression | None) -> dict[str, Any]:
    table = pa.Table.from_batches([encode_rows([ROW] * 100, SCHEMA)])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **writer_options(SCHEMA, compression)) as writer:
        writer.write_table(table)
    group = pq.read_metadata(pa.BufferReader(sink.getvalue())).row_group(0)
    return {group.column(leaf).path_in_schema: group.column(leaf) for leaf in range(group.num_columns)}


def test_binary_columns_have_no_dictionary_and_statistics() -> None:
    found = chunks("snappy")
    assert {name for name, chunk in found.items() if chunk.has_dictionary_page} == {
        "id", "a.b", "codes.list.element", "price",
    }  # fmt: skip
    assert {name for name, chunk in found.items() if not chunk.is_stats_set} == {"image", "array", "packed"}


@pytest.mark.parametrize("compression", [*COMPRESSIONS, None, "ZSTD"])
def test_compressed_cells_are_not_compressed_again(compression: Compression | None) -> None:
    expected = {None: "UNCOMPRESSED", "none": "UNCOMPRESSED"}.get(compression, str(compression).upper())
    for name, chunk in chunks(compression).items():
        assert chunk.compression == ("UNCOMPRESSED" if name in {"image", "packed"} else expected)


def test_unknown_compression_raises() -> None:
    with pytest.raises(InvalidArgumentError, match=r"compression must be one of snappy, lz4, .*, got 'rar'"):
        writer_options(SCHEMA, "rar")  # type: ignore[arg-type]
