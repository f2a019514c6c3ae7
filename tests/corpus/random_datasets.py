"""Write random datasets: nested types with nulls, all encodings, differing schemas, and partition directories."""

from __future__ import annotations

import datetime as dt
import random
import string
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["write_dataset_of"]

SCALARS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
    *(pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(3), pa.date32(), pa.date64()),
    *(pa.time32("ms"), pa.time64("us"), pa.time64("ns"), *(pa.duration(unit) for unit in ("s", "ms", "us", "ns"))),
    *(pa.timestamp(unit) for unit in ("ms", "us", "ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ns", "Asia/Kolkata")),
    *(pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal256(60, 5), pa.decimal128(3, 0)),
]
TOP_ONLY = [
    pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int32(), pa.int64()),
    pa.uuid(),
    pa.json_(),
    pa.bool8(),
    pa.opaque(pa.int64(), "type", "vendor"),
    pa.fixed_shape_tensor(pa.float32(), [2, 2]),
    pa.null(),
]
WIDER = {
    pa.int8(): pa.int32(),
    pa.int16(): pa.int64(),
    pa.int32(): pa.float64(),
    pa.uint8(): pa.uint64(),
    pa.uint16(): pa.int32(),
    pa.float32(): pa.float64(),
    pa.string(): pa.large_string(),
    pa.binary(): pa.large_binary(),
    pa.timestamp("ms"): pa.timestamp("us"),
    pa.duration("s"): pa.duration("ms"),
    pa.time32("ms"): pa.time64("us"),
}
ENCODINGS = {
    "BOOLEAN": ["PLAIN", "RLE"],
    "INT32": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "INT64": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "FLOAT": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "DOUBLE": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "BYTE_ARRAY": ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"],
    "FIXED_LEN_BYTE_ARRAY": ["PLAIN", "BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY"],
}
KEYS: list[tuple[pa.DataType, list[tuple[str, Any]]]] = [
    (pa.int64(), [("7", 7), ("-1", -1), ("__HIVE_DEFAULT_PARTITION__", None), ("0", 0)]),
    (pa.date32(), [("2026-01-31", dt.date(2026, 1, 31)), ("1969-12-31", dt.date(1969, 12, 31))]),
    (pa.bool_(), [("true", True), ("false", False), ("__HIVE_DEFAULT_PARTITION__", None)]),
    (pa.string(), [("a%20b", "a b"), ("07", "07"), ("true", "true"), ("2026-02-30", "2026-02-30"), ("ü", "ü")]),
]


def random_type(draw: random.Random, depth: int = 0) -> pa.DataType:
    """Return a random type that Parquet can store."""
    if depth == 0 and draw.random() < 0.15:
        return draw.choice(TOP_ONLY)
    if depth >= 3 or draw.random() < 0.55 + 0.15 * depth:
        return draw.choice(SCALARS)
    inner = random_type(draw, depth + 1)
    kind = draw.choice(["list", "list", "large", "view", "large view", "fixed", "struct", "struct", "map"])
    if kind == "struct":
        others = [random_type(draw, depth + 1) for _ in range(draw.randint(0, 2))]
        return pa.struct([pa.field(f"m{n}", one, draw.random() < 0.8) for n, one in enumerate([inner, *others])])
    if kind == "map":
        return pa.map_(draw.choice([pa.string(), pa.int32()]), inner)
    if kind == "fixed":
        return pa.list_(inner, draw.randint(1, 3))
    item = pa.field("item", inner, draw.random() < 0.8)
    makers = {"list": pa.list_, "large": pa.large_list, "view": pa.list_view, "large view": pa.large_list_view}
    return makers[kind](item)


def random_value(draw: random.Random, kind: pa.DataType, *, nullable: bool = True, nulls: float = 0.25) -> Any:
    """Return a random value that `pa.array` converts to a type."""
    types = pa.types
    if types.is_null(kind) or (nullable and draw.random() < nulls):
        return None
    if isinstance(kind, pa.UuidType):
        return uuid.UUID(int=draw.getrandbits(128)).bytes
    if isinstance(kind, pa.FixedShapeTensorType):
        return [draw.random() for _ in range(int(np.prod(kind.shape)))]
    if isinstance(kind, pa.BaseExtensionType):
        return {"bool8": draw.randint(0, 1), "opaque": draw.randint(-9, 9)}.get(
            kind.extension_name.removeprefix("arrow."), '{"a": 1}'
        )
    if types.is_dictionary(kind):
        return random_value(draw, kind.value_type, nullable=False)
    if types.is_struct(kind):
        return {one.name: random_value(draw, one.type, nullable=one.nullable, nulls=nulls) for one in kind}
    if types.is_map(kind):
        keys = {random_value(draw, kind.key_type, nullable=False) for _ in range(draw.randint(0, 3))}
        return [(key, random_value(draw, kind.item_type, nulls=nulls)) for key in sorted(keys)]
    if types.is_fixed_size_list(kind):
        return [random_value(draw, kind.value_type, nulls=nulls) for _ in range(kind.list_size)]
    if hasattr(kind, "value_type"):
        field = kind.value_field
        count = draw.choice([0, 1, 2, 5])
        return [random_value(draw, field.type, nullable=field.nullable, nulls=nulls) for _ in range(count)]
    return random_scalar(draw, kind)


def random_scalar(draw: random.Random, kind: pa.DataType) -> Any:
    types = pa.types
    if types.is_boolean(kind):
        return draw.random() < 0.5
    if types.is_integer(kind):
        bits = kind.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if types.is_signed_integer(kind) else (0, 2**bits - 1)
        return draw.choice([low, high, 0, 1, draw.randint(low, high)])
    if types.is_float16(kind):
        return np.float16(draw.choice([0.0, -0.0, 1.5, float("inf"), 6e-8, -65504.0]))
    if types.is_floating(kind):
        value = draw.choice([0.0, -0.0, float("inf"), float("nan"), draw.gauss(0, 1e6), 1e-30])
        return float(np.float32(value)) if types.is_float32(kind) else value
    if types.is_decimal(kind):
        digits = draw.randint(1, kind.precision)
        number = draw.randint(-(10**digits) + 1, 10**digits - 1)
        sign = (1,) if number < 0 else (0,)
        return Decimal((sign[0], tuple(map(int, str(abs(number)))), -kind.scale))
    if types.is_date(kind):
        return dt.date.fromordinal(draw.randint(620_000, 820_000))  # in the range of int64 nanoseconds, as in tensors
    if types.is_time(kind):
        return draw.randint(0, {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[kind.unit] * 86_400 - 1)
    if types.is_temporal(kind):
        limit = 2**62 // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[kind.unit]
        return draw.choice([0, 1, -1, draw.randint(-limit, limit)])
    if types.is_fixed_size_binary(kind):
        return draw.randbytes(kind.byte_width)
    text = "".join(draw.choices(string.printable + "üß漢😀\0", k=draw.choice([0, 1, 3, 40])))
    return text if types.is_string(kind) or types.is_large_string(kind) or kind == pa.string_view() else text.encode()


def random_column(draw: random.Random, kind: pa.DataType, rows: int) -> pa.Array:
    nulls = draw.choice([0.0, 0.0, 0.2, 0.9, 1.0])
    values = [random_value(draw, kind, nulls=nulls) for _ in range(rows)]
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    return pa.array(values, kind)


def random_options(draw: random.Random, schema: pa.Schema) -> dict[str, Any]:
    """Return random options of `pq.write_table`."""
    options: dict[str, Any] = {
        "row_group_size": draw.choice([1, 3, 7, 100]),
        "compression": draw.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        "data_page_version": draw.choice(["1.0", "2.0"]),
        "data_page_size": draw.choice([16, 200, 2**20]),
        "write_batch_size": draw.choice([1, 5, 1024]),
        "write_statistics": draw.random() < 0.7,
        "write_page_index": draw.random() < 0.3,
        "write_page_checksum": draw.random() < 0.3,
        "store_schema": draw.random() < 0.8,
        "store_decimal_as_integer": draw.random() < 0.3,
        "use_compliant_nested_type": draw.random() < 0.7,
        "version": draw.choice(["1.0", "2.4", "2.6"]),
        "allow_truncated_timestamps": True,
    }
    if draw.random() < 0.5:
        return options | {"use_dictionary": draw.random() < 0.5}
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **options, use_dictionary=False)
    stored = pq.ParquetFile(sink.getvalue()).schema
    leaves = [stored.column(number) for number in range(len(stored))]
    by_path: dict[str, str] = {}
    for leaf in leaves:
        encodings = ENCODINGS.get(leaf.physical_type, ["PLAIN"])
        by_path[leaf.path] = draw.choice(encodings)
    return options | {"use_dictionary": False, "column_encoding": by_path}


def changed_columns(draw: random.Random, columns: dict[str, pa.DataType], extra: pa.DataType) -> dict[str, pa.DataType]:
    """Return the column types of another file, with one random change."""
    name = draw.choice(list(columns))
    wider = WIDER.get(columns[name], columns[name])
    return draw.choice(
        [
            {other: kind for other, kind in columns.items() if other != name},
            columns | {name: wider},
            columns | {name: pa.null()},
            columns | {"extra": extra},
            dict(reversed(columns.items())),
        ]
    )


def write_dataset_of(seed: int, folder: Path) -> list[pa.Table]:
    """Write files; return their tables as pyarrow reads them, sorted by path, with partition keys as last columns.

    Raises:
        pa.ArrowException: pyarrow cannot read what it wrote.
    """
    draw = random.Random(seed)  # noqa: S311
    columns = {f"c{number}": random_type(draw) for number in range(draw.randint(1, 4))}
    extra = draw.choice(SCALARS)
    keys = {f"k{number}": draw.choice(KEYS) for number in range(draw.choice([0, 0, 1, 2]))}
    written: list[tuple[str, dict[str, Any]]] = []
    first = 0
    for file in range(draw.randint(1, 4)):
        rows, own = draw.choice([0, 1, 5, 23, 40]) if file else draw.choice([1, 5, 23, 40]), dict(columns)
        if file and draw.random() < 0.4:
            own = changed_columns(draw, own, extra)
        table = pa.table(
            {"id": pa.array(range(first, first + rows), pa.int64())}
            | {name: random_column(draw, kind, rows) for name, kind in own.items()}
        )
        first += rows
        chosen = {key: draw.choice(values) for key, (_, values) in keys.items()}
        path = "/".join([*(f"{key}={text}" for key, (text, _) in chosen.items()), f"{file}.parquet"])
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / path, **random_options(draw, table.schema))
        written.append((path, {key: value for key, (_, value) in chosen.items()}))
    values_of = {key: {dict(of)[key] for _, of in written} for key in keys}
    tables = []
    for path, of_keys in sorted(written):
        table = pq.ParquetFile(folder / path).read()
        for key, value in of_keys.items():
            kind = keys[key][0]
            if kind == pa.string() and values_of[key] == {"true"}:
                kind, value = pa.bool_(), True
            elif values_of[key] == {None}:
                kind = pa.string()
            table = table.append_column(key, pa.array([value] * len(table), kind))
        tables.append(table)
    return tables
