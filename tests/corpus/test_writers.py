"""Tests of files by pyarrow and DuckDB: every type, compression, encoding and page version."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from tests.corpus.reading import WAYS, check_equal


def extension(kind: Any, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


ROWS = 5
DECIMALS = [decimal.Decimal("1.5"), None, decimal.Decimal("-2.25"), decimal.Decimal(0), None]
COUNTS = [1, None, 86_399, 0, 7]
NUMBERS = [1, None, 2, 0, None]
BIG = 2**60 + 1
PAIR = pa.list_(pa.int32(), 2)
COLUMNS: dict[str, pa.Array] = {
    **{str(kind): pa.array(NUMBERS, kind) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32())},
    **{str(kind): pa.array(NUMBERS, kind) for kind in (pa.uint32(), pa.float32(), pa.float64())},
    "int64": pa.array([BIG, None, -BIG, 0, 1]),
    "uint64": pa.array([2**64 - 1, None, 0, 1, 2], pa.uint64()),
    "half": pa.array([np.float16(1.5), None, np.float16("inf"), np.float16(0), np.float16("nan")], pa.float16()),
    "required": pa.array(range(ROWS)),
    "bool": pa.array([True, None, False, True, None]),
    "decimal32": pa.array(DECIMALS, pa.decimal32(5, 2)),
    "decimal64": pa.array(DECIMALS, pa.decimal64(12, 2)),
    "decimal128": pa.array(DECIMALS, pa.decimal128(38, 2)),
    "decimal256": pa.array(DECIMALS, pa.decimal256(70, 2)),
    "date32": pa.array(COUNTS, pa.int32()).cast(pa.date32()),
    "date64": pa.array([dt.date(2026, 1, 31), None, dt.date(1700, 1, 1), dt.date(2200, 12, 31), None], pa.date64()),
    "time32": pa.array(COUNTS, pa.time32("ms")),
    "time64": pa.array(COUNTS, pa.time64("us")),
    "time64_ns": pa.array(COUNTS, pa.time64("ns")),
    **{f"duration_{unit}": pa.array(COUNTS, pa.duration(unit)) for unit in ("s", "ms", "us", "ns")},
    **{f"timestamp_{unit}": pa.array(COUNTS, pa.timestamp(unit)) for unit in ("ms", "us", "ns")},
    "zoned": pa.array(COUNTS, pa.timestamp("us", "Europe/Berlin")),
    "string": pa.array(["a", None, "", "ü" * 40, "a"]),
    "large_string": pa.array(["a", None, "", "b", "a"], pa.large_string()),
    "string_view": pa.array(["a", None, "", "b" * 40, "a"], pa.string_view()),
    "binary": pa.array([b"a", None, b"", b"\0\xff", b"a"]),
    "binary_view": pa.array([b"a", None, b"", b"b" * 40, b"a"], pa.binary_view()),
    "fixed_binary": pa.array([b"abc", None, b"\0\0\0", b"def", None], pa.binary(3)),
    "dictionary": pa.array(["a", None, "b", "a", None]).dictionary_encode(),
    "null": pa.nulls(ROWS),
    "uuid": extension(pa.uuid(), pa.array([uuid.UUID(int=1).bytes, None, b"x" * 16, None, b"y" * 16], pa.binary(16))),
    "json": extension(pa.json_(), pa.array(['{"a":1}', None, "[]", "1", None])),
    "bool8": extension(pa.bool8(), pa.array([1, None, 0, 1, 0], pa.int8())),
    "opaque": extension(pa.opaque(pa.int64(), "type", "vendor"), pa.array(NUMBERS)),
    "tensor": extension(pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2], None] * 2 + [[7, 8]], PAIR)),
    "list": pa.array([[BIG], [2, None], None, [], [None]]),
    "large_list": pa.array([["a"], ["b", None], None, [], [None]], pa.large_list(pa.string())),
    "list_view": pa.array([[1], [2, None], None, [], [None]], pa.list_view(pa.int64())),
    "fixed_list": pa.array([[1, 2], [3, None], None, [BIG, 6], [0, 1]], pa.list_(pa.int64(), 2)),
    "lists": pa.array([[[1]], [[2, 4], [3]], None, [None, [BIG], [None, 1]], []]),
    "times": pa.array([[1, None], [2], None, [], [3]], pa.list_(pa.timestamp("us"))),
    "struct": pa.array([{"a": 1, "b": [1, None]}, None, {"a": None, "b": None}, {"a": 2, "b": []}, None]),
    "map": pa.array([[("k", 1), ("l", None)], None, [], [("m", 2)], []], pa.map_(pa.string(), pa.int64())),
    "list_of_structs": pa.array([[{"a": 1}, None], None, [], [{"a": None}], [{"a": 2}]]),
    "map_of_lists": pa.array([[("k", [1])], None, [], [("m", None)], []], pa.map_(pa.string(), pa.list_(pa.int8()))),
}  # fmt: skip
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]
ENCODINGS = {
    "DELTA_BINARY_PACKED": ["int32", "int64", "uint32", "timestamp_us", "required"],
    "BYTE_STREAM_SPLIT": ["float", "double", "half", "int32", "int64", "fixed_binary"],
    "DELTA_BYTE_ARRAY": ["string", "binary", "large_string"],
    "DELTA_LENGTH_BYTE_ARRAY": ["string", "binary", "large_string"],
    "RLE": ["bool"],
}


def check(path: Path, subtests: pytest.Subtests) -> None:
    table = pq.ParquetFile(path).read()
    for way in WAYS:
        with subtests.test(way):
            check_equal(path, way, table)
    with subtests.test("verify"):
        assert petastore.verify(path).problems == ()


@pytest.mark.parametrize(
    ("codec", "version", "with_dictionary"), list(itertools.product(CODECS, ["1.0", "2.0"], [False, True]))
)
def test_each_type_written_by_pyarrow_is_read_for_every_compression(
    tmp_path: Path, subtests: pytest.Subtests, codec: str, version: Any, with_dictionary: bool
) -> None:
    path = tmp_path / "x.parquet"
    options: Any = {"compression": codec, "data_page_version": version, "use_dictionary": with_dictionary}
    pq.write_table(pa.table(COLUMNS), path, row_group_size=3, **options)
    check(path, subtests)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_encoding_written_by_pyarrow_is_read(
    tmp_path: Path, subtests: pytest.Subtests, encoding: str, version: Any
) -> None:
    table, path = pa.table(COLUMNS).select(ENCODINGS[encoding]), tmp_path / "x.parquet"
    of_columns = dict.fromkeys(table.column_names, encoding)
    pq.write_table(table, path, use_dictionary=False, column_encoding=of_columns, data_page_version=version)
    check(path, subtests)


DUCKDB = """
    SELECT i::TINYINT a, i::UTINYINT b, i::BIGINT c, i::UBIGINT d, i::HUGEINT e, i::FLOAT f, i / 3 g, i % 2 = 0 h,
        i::DECIMAL(4, 1) j, i::DECIMAL(18, 3) k, i::DECIMAL(38, 5) l, 'text ' || i m, ('b' || i)::BLOB n,
        DATE '2026-01-31' + i::INT o, TIME '12:34:56.789' p, TIMESTAMP '2026-01-31 12:34:56.789' q,
        TIMESTAMP_NS '2026-01-31 12:34:56.789123456' r, TIMESTAMP_S '2026-01-31 12:34:56' s,
        TIMESTAMPTZ '2026-01-31 12:34:56+02' t, uuid() u, 'red'::ENUM('red', 'green') v,
        CASE WHEN i % 3 > 0 THEN [i, NULL] END w, [[i], NULL, [i, i]] x, {'lat': i / 2, 'tags': ['a', NULL]} y,
        MAP {'k': i, 'l': NULL} z, [{'p': i}, NULL] aa, [i, i + 1]::BIGINT[2] ab, CASE WHEN i > 3 THEN i END ac,
        '{"a": 1}'::JSON ad, TIMETZ '12:34:56+02' ae, {'a': i}::VARIANT af, INTERVAL (i) MONTH ag, '101'::BIT ah
    FROM range(10) rows(i)
"""


@pytest.mark.parametrize("codec", ["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"])
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_each_type_written_by_duckdb_is_read_for_every_compression(
    tmp_path: Path, subtests: pytest.Subtests, codec: str, version: str
) -> None:
    path = tmp_path / "x.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({DUCKDB}) TO '{path}' (FORMAT parquet, CODEC {codec}, PARQUET_VERSION {version})")
    check(path, subtests)


def test_duplicate_column_names_are_read_by_position(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"]), path)
    for way in WAYS:
        with subtests.test(way):
            assert WAYS[way](path, ["b"]) == {"b": [("int", 2)]}
            assert WAYS[way](path, None) == {"a": [("int", 1)], "b": [("int", 2)], "a_1": [("int", 3)]}
