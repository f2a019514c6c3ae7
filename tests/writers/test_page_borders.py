"""Tests of cutting Arrow chunks at page boundaries: the file equals that of a single chunk, byte for byte."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import NdarrayCodec
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.writers.parquet import Compression, on_page_borders, writer_options

SCHEMA = Unischema(
    "x",
    [
        UnischemaField("array", "uint8", (160 * 1024,), NdarrayCodec()),
        UnischemaField("bytes", bytes, nullable=True),
        UnischemaField("id", "int64"),
        UnischemaField("text", "str", nullable=True),
        UnischemaField("list", "int16", (None,), nullable=True),
    ],
)
"""Arrow checks the page size of the arrays after every six rows: that is 960 KiB, so a page has twelve rows."""


def a_row(number: int) -> dict[str, object]:
    return {
        "array": bytes([number % 251]) * (160 * 1024 + 128),
        "bytes": None if number % 7 == 3 else b"x" * (number * 1009 % 5000),
        "id": number,
        "text": None if number % 5 == 2 else str(number % 9),
        "list": None if number % 4 == 1 else list(range(number % 6)),
    }


def in_chunks(sizes: list[int], cut: int) -> pa.Table:
    """Return rows in chunks of these sizes, which are slices of larger chunks."""
    numbers, batches = iter(range(sum(sizes) + cut * len(sizes))), []
    for size in sizes:
        rows = [a_row(next(numbers)) for _ in range(size + cut)]
        batches.append(pa.RecordBatch.from_pylist(rows, storage_schema(SCHEMA)).slice(cut))
    return pa.Table.from_batches(batches, storage_schema(SCHEMA))


def file_of(table: pa.Table, compression: Compression) -> bytes:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, table.schema, **writer_options(SCHEMA, compression)) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    return bytes(sink.getvalue())


@given(st.lists(st.integers(0, 15), max_size=6), st.integers(0, 2), st.sampled_from(["none", "snappy"]))
def test_parquet_file_bytes_do_not_depend_on_arrow_chunks(sizes: list[int], cut: int, compression: Compression) -> None:
    rows = writer_options(SCHEMA, compression)["write_batch_size"]
    assert rows == 6
    table = in_chunks(sizes, cut)
    found = on_page_borders(table, rows)
    found.validate(full=True)
    assert found.equals(table)
    assert file_of(found, compression) == file_of(table.combine_chunks(), compression)


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(1, 9))
def test_arrow_chunks_are_recut_at_page_borders_with_few_copies(sizes: list[int], rows: int) -> None:
    numbers = iter(range(sum(sizes)))
    chunks = [pa.array([str(next(numbers)).encode() for _ in range(size)], pa.binary()) for size in sizes]
    found = on_page_borders(pa.table({"x": pa.chunked_array(chunks, pa.binary())}), rows).column("x")
    assert found.to_pylist() == [str(number).encode() for number in range(sum(sizes))]
    assert all(len(chunk) % rows == 0 for chunk in found.chunks[:-1])
    copied = sum(len(chunk) for chunk in found.chunks if not _is_slice_of(chunk, chunks))
    assert copied <= rows * len(sizes)


def _is_slice_of(chunk: pa.Array, chunks: list[pa.Array]) -> bool:
    def place(array: pa.Array) -> int | None:
        return array.buffers()[2].address if array.buffers()[2] is not None else None

    return place(chunk) in {place(of) for of in chunks}
