"""Check that Petastorm reads the cells that petastore writes. Two halves, in two environments.

    python benchmarks/petastorm_reads_our_cells.py write FOLDER     # where petastore is installed
    python benchmarks/petastorm_reads_our_cells.py check FOLDER     # where petastorm 0.13.1 is installed

The first half encodes values of every codec and dtype into a Parquet file, and keeps the values beside it. The second
half decodes the file with Petastorm's own `decode_row`, compares, and says whether Petastorm would have written the
same bytes. What it printed is recorded in docs/explanation/petastorm-compatibility.md.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 5
NUMBERS = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
SCALARS = {
    "bool": "boolean", "int8": "tinyint", "uint8": "smallint", "int16": "smallint", "uint16": "int", "int32": "int",
    "uint32": "bigint", "int64": "bigint", "float32": "float", "float64": "double", "str": "string",
    "decimal": "decimal(10,4)",
}  # fmt: skip
PLAIN = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float32", "float64", "str")
MORE_ARRAYS = ("complex64", "complex128", "str", "bytes", "datetime64[us]", "timedelta64[ns]")

Field = tuple[str, str, tuple[int | None, ...], str | None, tuple[Any, ...]]


def fields() -> Iterator[Field]:
    """Name, dtype, shape, codec and its arguments, of every field that is tried."""
    for dtype, spark_type in SCALARS.items():
        yield f"scalar_{dtype}", dtype, (), "ScalarCodec", (spark_type,)
    for dtype in PLAIN:
        yield f"plain_{dtype}", dtype, (), None, ()
    for codec in ("NdarrayCodec", "CompressedNdarrayCodec"):
        for dtype in NUMBERS + MORE_ARRAYS:
            yield f"{codec}_{dtype}", dtype, (3, None), codec, ()
        yield f"{codec}_fixed", "float32", (4, 4), codec, ()
        yield f"{codec}_empty", "int16", (0, None), codec, ()
    for dtype in ("uint8", "uint16"):
        yield f"png_{dtype}_rgb", dtype, (None, None, 3), "CompressedImageCodec", ("png",)
        yield f"png_{dtype}_gray", dtype, (20, 30), "CompressedImageCodec", ("png",)
    for quality in (50, 80, 100):
        yield f"jpeg_{quality}_rgb", "uint8", (24, None, 3), "CompressedImageCodec", ("jpeg", quality)
        yield f"jpeg_{quality}_gray", "uint8", (17, 33), "CompressedImageCodec", ("jpeg", quality)


def value_of(dtype: str, shape: tuple[int | None, ...], row: int, generator: np.random.Generator) -> Any:
    """Some value of a dtype and shape; free dimensions differ from row to row."""
    sizes = tuple(8 + row if size is None else size for size in shape)
    if dtype == "decimal":
        return Decimal(int(generator.integers(-(10**9), 10**9))).scaleb(-4)
    if dtype in ("str", "bytes"):
        words = np.array([f"wörd {number}" for number in generator.integers(0, 10**6, sizes).ravel()]).reshape(sizes)
        words = words if dtype == "str" else np.char.encode(words, "utf-8")
        return words if shape else str(words)
    if dtype.startswith(("datetime", "timedelta")):
        return generator.integers(-(2**40), 2**40, sizes).astype(dtype)
    if dtype.startswith(("float", "complex")):
        return (generator.normal(size=sizes) * 9).astype(dtype)[()]
    if dtype == "bool":
        return (generator.random(sizes) < 0.5)[()]
    limits = np.iinfo(dtype)
    return generator.integers(limits.min, limits.max, sizes, dtype, endpoint=True)[()]


def write(folder: Path) -> None:
    """Encode with petastore."""
    import petastore.codecs
    from petastore.codecs.registry import codec_of
    from petastore.schema import Unischema, UnischemaField
    from petastore.schema.arrow import storage_schema

    made = []
    for name, dtype, shape, codec, arguments in fields():
        built = None if codec is None else getattr(petastore.codecs, codec)(*arguments)
        made.append(UnischemaField(name, dtype, shape, built))
    schema = Unischema("Cells", made)
    generator = np.random.default_rng(11)
    columns: list[pa.Array] = []
    expected: dict[str, Any] = {}
    for field, (name, dtype, shape, codec, arguments) in zip(schema, fields(), strict=True):
        values = [value_of(dtype, shape, row, generator) for row in range(ROWS)]
        column = codec_of(field).encode_column(values, field)
        columns.append(column)
        for row, value in enumerate(values):
            lossy = codec == "CompressedImageCodec" and arguments[0] == "jpeg"
            kept = codec_of(field).decode(field, column[row].as_py()) if lossy else value
            expected[f"{name}/{row}"] = np.array(str(kept)) if dtype == "decimal" else np.asarray(kept)
            expected[f"{name}/{row}/given"] = np.array(str(value)) if dtype == "decimal" else np.asarray(value)
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns, schema=storage_schema(schema)), folder / "cells.parquet")
    np.savez(folder / "expected.npz", **expected)
    print(f"wrote {len(made)} fields × {ROWS} rows to {folder}")
    print(versions("petastore", "pyarrow", "numpy", "opencv-python-headless", "simplejpeg"))


def check(folder: Path) -> None:
    """Decode with Petastorm, in its own environment."""
    # By name, because no environment holds both halves' packages.
    codecs = importlib.import_module("petastorm.codecs")
    unischema = importlib.import_module("petastorm.unischema")
    decode_row = importlib.import_module("petastorm.utils").decode_row

    made = []
    for name, dtype, shape, codec, arguments in fields():
        built = None
        if codec == "ScalarCodec":
            built = codecs.ScalarCodec(spark_type_of(arguments[0]))
        elif codec is not None:
            built = getattr(codecs, codec)(*arguments)
        made.append(unischema.UnischemaField(name, petastorm_dtype(dtype), shape, built, False))
    schema = unischema.Unischema("Cells", made)
    rows = pq.read_table(folder / "cells.parquet").to_pylist()
    assert len(rows) == ROWS
    print(versions("petastorm", "pyarrow", "numpy", "pyspark", "opencv-python-headless"))
    wrong: list[str] = []
    same_bytes: dict[str, list[bool]] = {}
    checked = 0
    with np.load(folder / "expected.npz") as expected:
        for row, cells in enumerate(rows):
            found = decode_row(cells, schema)
            for field in made:
                wanted = expected[f"{field.name}/{row}"]
                checked += 1
                if not equal(wanted, found[field.name]):
                    wrong.append(f"{field.name}, row {row}: {wanted!r} != {found[field.name]!r}")
                if field.codec is not None:
                    same = theirs(field, expected[f"{field.name}/{row}/given"]) == cells[field.name]
                    same_bytes.setdefault(kind_of(field.name), []).append(same)
    for kind, same in same_bytes.items():
        print(f"{kind}: petastorm itself writes the same cell for {sum(same)} of {len(same)}")
    print(f"petastorm read {checked - len(wrong)} of {checked} cells as they were meant")
    print("\n".join(wrong))
    sys.exit(bool(wrong))


def equal(wanted: Any, found: Any) -> bool:
    """Whether Petastorm's value is ours; a decimal is compared as one, arrays with their dtype."""
    if isinstance(found, Decimal):
        return found == Decimal(str(wanted))
    got = np.asarray(found)
    return bool(got.dtype == wanted.dtype and got.shape == wanted.shape and np.array_equal(got, wanted))


def theirs(field: Any, given: Any) -> Any:
    """The cell that Petastorm would write."""
    value = given if field.shape else given[()]
    value = Decimal(str(value)) if field.numpy_dtype is Decimal else value
    cell = field.codec.encode(field, value)
    return bytes(cell) if isinstance(cell, bytearray) else cell


def kind_of(name: str) -> str:
    """The part of a field's name that says its codec."""
    return name.split("_", maxsplit=1)[0]


def petastorm_dtype(dtype: str) -> Any:
    """A dtype as Petastorm's users write it."""
    named = {"str": np.str_, "bytes": np.bytes_, "decimal": Decimal, "bool": np.bool_}
    return named[dtype] if dtype in named else np.dtype(dtype).type


def spark_type_of(name: str) -> Any:
    """The pyspark type of a simple name."""
    from pyspark.sql import types

    plain = {
        "boolean": types.BooleanType, "tinyint": types.ByteType, "smallint": types.ShortType, "int": types.IntegerType,
        "bigint": types.LongType, "float": types.FloatType, "double": types.DoubleType, "string": types.StringType,
    }  # fmt: skip
    return plain[name]() if name in plain else types.DecimalType(10, 4)


def versions(*packages: str) -> str:
    """What ran."""
    return ", ".join(
        [f"Python {platform.python_version()}", *(f"{name} {importlib.metadata.version(name)}" for name in packages)]
    )


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
