"""Check that Petastorm opens the datasets that petastore exports. Two halves, in two environments.

    python -m benchmarks.petastorm_opens_our_datasets write FOLDER     # where petastore is installed
    python -m benchmarks.petastorm_opens_our_datasets check FOLDER     # where petastorm 0.13.1 is installed

The first half writes a dataset with fields of every codec and dtype that `petastore.interop.export` takes, without and
with nulls, exports it, and keeps what petastore reads beside it; and it migrates a copy of the dataset Meadow, which
Petastorm wrote. The second half reads both with Petastorm's own `make_reader` and compares. What it printed is recorded
in docs/explanation/petastorm-compatibility.md.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import warnings
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.petastorm_reads_our_cells import NUMBERS, Field, equal, value_of, versions
from benchmarks.petastorm_reads_our_cells import fields as cells

ROWS = 12
MEADOW = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "petastorm-0.13.1" / "Meadow"
PLAIN = ("uint32", "uint64", "float16", "bytes", "decimal", "datetime64[us]", "datetime64[D]")
SCALARS = {
    "timestamp": "datetime64[us]", "timestamp_ntz": "datetime64[us]", "date": "datetime64[D]", "varchar(80)": "str",
    "decimal(20,0)": "uint64", "binary": "bytes",
}  # fmt: skip


def fields() -> Iterator[Field]:
    """Name, dtype, shape, codec and its arguments, of every field that is tried."""
    for name, dtype, shape, codec, arguments in cells():
        yield name.replace("[", "_").replace("]", ""), dtype, shape, codec, arguments
    for dtype in PLAIN:
        yield f"plain_{dtype[:10]}_{dtype[-2]}", dtype, (), None, ()
    for dtype in NUMBERS:
        yield f"list_{dtype}", dtype, (None,), None, ()
    yield "list_fixed", "float32", (3,), None, ()
    for number, (spark_type, dtype) in enumerate(SCALARS.items()):
        yield f"more_{number}", dtype, (), "ScalarCodec", (spark_type,)


def a_value(dtype: str, shape: tuple[int | None, ...], row: int, generator: np.random.Generator) -> Any:
    """Some value; dates are days of this and the last century."""
    if dtype == "bytes" and not shape:
        return bytes([row, 0, 255])
    if dtype == "datetime64[D]":
        return np.datetime64("1970-01-01", "D") + int(generator.integers(-20_000, 20_000))
    return value_of(dtype, shape, row, generator)


def write(folder: Path) -> None:
    """Write and export with petastore, and migrate what Petastorm wrote."""
    import petastore
    import petastore.codecs
    from petastore.interop import export, migrate

    made = []
    for name, dtype, shape, codec, arguments in fields():
        built = None if codec is None else getattr(petastore.codecs, codec)(*arguments)
        made.append(petastore.UnischemaField(name, dtype, shape, built))
        # Petastorm stops at nulls among time stamps, and `export` refuses them.
        if dtype != "datetime64[us]" or shape:
            made.append(petastore.UnischemaField(f"{name}_or_null", dtype, shape, built, True))
    generator = np.random.default_rng(11)
    rows = [
        {
            field.name: a_value(field.dtype_name, field.shape, row, generator)
            if row % 3 or not field.nullable
            else None
            for field in made
        }
        for row in range(ROWS)
    ]
    exported, meadow = folder / "exported", folder / "Meadow"
    petastore.write_dataset(exported, petastore.Unischema("Cells", made), rows, rows_per_row_group=2, rows_per_file=6)
    print(f"exported {len(made)} fields × {ROWS} rows: {export(exported).written}")
    shutil.copytree(MEADOW, meadow)
    print(f"migrated Meadow: {migrate(meadow).written}")
    for dataset in (exported, meadow):
        with petastore.make_reader(dataset, shuffle_row_groups=False) as reader:
            np.savez(dataset.with_suffix(".npz"), **expected(reader))
    print(versions("petastore", "pyarrow", "numpy"))


def check(folder: Path) -> None:
    """Read with Petastorm, in its own environment."""
    warnings.simplefilter("ignore")
    # By name, because no environment holds both halves' packages.
    make_reader = importlib.import_module("petastorm").make_reader
    print(versions("petastorm", "pyarrow", "numpy", "pyspark", "opencv-python-headless"))
    wrong: list[str] = []
    for name in ("exported", "Meadow"):
        url = (folder / name).resolve().as_uri()
        with make_reader(url, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
            found = list(reader)
        with np.load(folder / f"{name}.npz") as wanted:
            compared = [(key, wanted[key], getattr(found[row_of(key)], key.split("/")[1])) for key in wanted.files]
        differ = [key for key, ours, theirs in compared if not same(ours, theirs)]
        print(
            f"{name}: petastorm read {len(found)} rows, {len(compared) - len(differ)} of {len(compared)} values alike"
        )
        wrong += [f"{name}: {key}" for key in differ]
    print("\n".join(wrong))
    sys.exit(bool(wrong))


def expected(rows: Any) -> dict[str, Any]:
    """What petastore reads, under row/field; a null is an empty array of a dtype that nothing else has."""
    values: dict[str, Any] = {}
    for number, row in enumerate(rows):
        for name, value in row._asdict().items():
            if value is None:
                kept: Any = np.zeros(0, "V1")
            elif isinstance(value, bytes):
                kept = np.frombuffer(value, "V1")
            else:
                kept = str(value) if isinstance(value, Decimal) else value
            values[f"{number}/{name}"] = np.asarray(kept)
    return values


def row_of(key: str) -> int:
    """The number of the row in a key."""
    return int(key.split("/")[0])


def same(ours: Any, theirs: Any) -> bool:
    """Whether Petastorm's value is ours; it gives NaN for a null among floats."""
    if ours.dtype == np.dtype("V1"):
        if not len(ours):
            return theirs is None or bool(np.ndim(theirs) == 0 and theirs != theirs)
        return bool(ours.tobytes() == bytes(theirs))
    return equal(ours, theirs)


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](Path(sys.argv[2]))
