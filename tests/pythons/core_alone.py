"""Program that tests the public functions of the core with only its four dependencies installed.

`python -m tests.pythons` runs it with the oldest and the newest releases of the four, in environments without pandas.
"""

from __future__ import annotations

import datetime as dt
import importlib.util
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from petastore import TransformSpec, Unischema, UnischemaField, col, make_batch_reader, make_reader, write_dataset
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec

NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")


def main() -> None:
    """Write and read datasets like a first program.

    Raises:
        AssertionError: pandas is installed, or a value is wrong.
    """
    assert importlib.util.find_spec("pandas") is None, "pandas is installed here"
    with tempfile.TemporaryDirectory() as folder:
        _plain_parquet(f"{folder}/plain")
        _own_dataset(f"{folder}/own")
        _inferred(f"{folder}/inferred")
    print(f"all is well with pyarrow {pa.__version__} and NumPy {np.__version__}, without pandas")


def _plain_parquet(folder: str) -> None:
    columns: dict[str, Any] = {name: pa.array([1, None, 3], pa.from_numpy_dtype(name)) for name in NUMBERS}
    columns |= {
        "id": [0, 1, 2],
        "bool": [True, None, False],
        "text": ["a", None, "ü"],
        "bytes": [b"a", b"", None],
        "decimal": [Decimal("1.50"), None, Decimal("-2.25")],
        "date": [dt.date(2026, 1, 2), None, dt.date(1, 1, 1)],
        "time": pa.array([0, None, 5], pa.timestamp("us")),
        "category": pa.array(["x", None, "x"]).dictionary_encode(),
        "list": [[1, 2], [], None],
        "vector": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
        "struct": [{"a": 1, "b": "x"}, None, {"a": 2, "b": "y"}],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    }
    Path(folder).mkdir()
    pq.write_table(pa.table(columns), f"{folder}/a.parquet", row_group_size=2)  # a single one is read with the footer
    with make_reader(folder, shuffle_row_groups=False) as reader:
        rows = list(reader)
    assert [row.id for row in rows] == [0, 1, 2]
    for name in NUMBERS:
        values = [getattr(row, name) for row in rows]
        assert values == [1, None, 3], (name, values)
        assert values[0].dtype == np.dtype(name)
    assert [row.category for row in rows] == ["x", None, "x"]
    assert rows[0].struct == {"a": 1, "b": "x"}
    with make_batch_reader(folder, filters=col("text") == "ü", filter_cache=False) as reader:
        (batch,) = reader.iter_batches(3)
    assert batch["id"].tolist() == [2]


def _own_dataset(folder: str) -> None:
    fields = [
        UnischemaField("id", "int64"),
        UnischemaField("text", "str", nullable=True),
        UnischemaField("at", "datetime64[ns]"),
        UnischemaField("point", "float32", (2,), NdarrayCodec()),
        UnischemaField("free", "int16", (None,), CompressedNdarrayCodec()),
    ]
    rows = [
        {
            "id": number,
            "text": f"row {number}" if number % 3 else None,
            "at": np.datetime64(number, "ns"),
            "point": np.full(2, number, np.float32),
            "free": np.arange(number % 5, dtype=np.int16),
        }
        for number in range(100)
    ]
    schema = Unischema("own", fields)
    write_dataset(folder, schema, rows[:60], rows_per_row_group=20)
    write_dataset(folder, schema, rows[60:], rows_per_row_group=20, mode="append")
    seen: list[int] = []
    for shard in range(2):
        with make_reader(folder, cur_shard=shard, shard_count=2, shuffle_rows=True, seed=3) as reader:
            seen += [int(row.id) for row in reader if row.free.tolist() == list(range(row.id % 5))]
    assert sorted(seen) == list(range(100))
    double = TransformSpec(lambda columns: {**columns, "point": columns["point"] * 2}, takes="columns")
    with make_batch_reader(folder, transform_spec=double, shuffle_row_groups=False) as reader:
        batches = reader.iter_batches(30)
        first = next(batches)
        state = reader.state_dict()
    assert first["point"].tolist() == [[2 * number, 2 * number] for number in range(30)]
    with make_batch_reader(folder, transform_spec=double, shuffle_row_groups=False) as reader:
        reader.load_state_dict(state)
        assert [int(number) for batch in reader.iter_batches(30) for number in batch["id"]] == list(range(30, 100))


def _inferred(folder: str) -> None:
    write_dataset(folder, {"id": np.arange(5), "name": list("abcde"), "unit": np.ones((5, 3), np.float64)})
    with make_batch_reader(folder, shuffle_row_groups=False) as reader:
        (batch,) = reader.iter_batches(5)
    assert batch["id"].tolist() == [0, 1, 2, 3, 4]
    assert batch["unit"].shape == (5, 3)


if __name__ == "__main__":
    main()
