"""Tests of converting DataFrames to datasets and back, on classic and Connect sessions; `frames.py` has the steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.spark.caching.leases import is_directory_name
from tests.spark.frames import ROWS, same, vector_of
from tests.spark.programs import Left, SparkPrograms, kinds
from tests.spark.scenario import SCHEMA, row_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect"))
def left(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Left:
    return spark_programs.left(request.param, "frames")


@pytest.fixture
def folder(left: Left) -> Path:
    return left.folder


@pytest.fixture
def facts(left: Left) -> Any:
    return left.facts


def test_converter_without_a_parent_directory_raises_with_the_key(facts: Any) -> None:
    assert facts["no_parent"].startswith("InvalidArgumentError: ")
    assert "petastore.spark.caching.converter.parentCacheDirUrl" in facts["no_parent"]


def test_converter_accepts_petastorms_configuration_key(facts: Any) -> None:
    assert facts["petastorms_key"]


def test_next_converter_removes_directories_of_crashed_processes(facts: Any) -> None:
    assert facts["what_a_crash_left"] == {"was there": True, "removed": True, "others stay": True}


def test_converter_stores_all_rows_in_a_new_directory(facts: Any) -> None:
    stored = facts["stored"]
    assert stored["len"] == ROWS
    assert stored["url"]
    assert is_directory_name(stored["name"])
    assert stored["declared"]
    assert stored["compression"] == ["UNCOMPRESSED"]


def test_converter_infers_shapes_and_float_dtype(facts: Any) -> None:
    assert facts["stored"]["fields"] == {
        "id": ["int64", []],
        "features": ["float32", [3]],
        "maybe": ["float32", [1]],
        "x": ["float32", []],
        "f": ["float32", []],
        "even": ["float32", [2]],
        "uneven": ["float32", [None]],
        "grid.2": ["float32", [2, 3]],
        "small": ["int8", []],
        "text": ["str", []],
        "when": ["datetime64[us]", []],
        "price": ["decimal", []],
    }


def test_converter_values_equal_the_dataframe(facts: Any) -> None:
    rows = facts["stored"]["rows"]
    numbers = range(ROWS)
    assert rows["id"] == rows["small"] == list(numbers)
    assert rows["maybe"] == [[1.0] if number % 3 else None for number in numbers]
    assert rows["x"] == [float(np.float32(number / 7)) for number in numbers]
    assert rows["even"] == [[float(np.float32(number / 9)), 1.0] for number in numbers]
    assert rows["uneven"] == [[1.0] * (number % 4) for number in numbers]
    assert rows["grid.2"] == [[[float(number), 1.0, 2.0], [3.0, 4.0, 5.0]] for number in numbers]
    assert rows["text"] == [f"row {number}" for number in numbers]
    assert [float(price) for price in rows["price"]] == [number / 4 for number in numbers]


def test_converter_keeps_timestamps_of_any_year(facts: Any) -> None:
    """Spark would write INT96 timestamps, which begin in 1677."""
    when = np.array(facts["stored"]["rows"]["when"], "datetime64[us]")
    assert np.array_equal(when, np.datetime64("1500-01-02", "us") + np.arange(ROWS).astype("timedelta64[D]"))


def test_converter_vectors_become_one_tensor(facts: Any) -> None:
    dtype, values = facts["stored"]["tensor"]
    assert dtype == "torch.float32"
    assert np.array_equal(np.array(values, "float32"), np.array([vector_of(n) for n in range(ROWS)], "float32"))


def test_converter_casts_floats_only_on_request(facts: Any) -> None:
    floats = {"features": "float64", "x": "float64", "even": "float64", "grid.2": "float64"}
    assert facts["dtypes"] == {
        "None": {"id": "int64", **floats, "f": "float32"},
        "float64": {"id": "int64", **floats, "f": "float64"},
    }


def test_converter_reuses_rows_of_an_equal_plan(facts: Any) -> None:
    reuse = facts["reuse"]
    assert reuse["same"]
    assert reuse["others"] == 6
    assert reuse["rows"] == [5, 5, 5, 5, 3, 12]


def test_concurrent_converters_store_equal_rows_once(facts: Any) -> None:
    assert facts["reuse"]["threads"] == 1


def test_converter_directory_exists_until_the_last_delete(facts: Any) -> None:
    assert facts["reuse"]["shared one outlives the first delete"]
    assert facts["reuse"]["stored again"] == [True, True, True]


def test_converter_columns_that_cannot_become_tensors_do_not_affect_others(facts: Any) -> None:
    kinds = facts["kinds_of_columns"]
    assert kinds["map"] == [1, False]
    assert kinds["map's rows"] == [7]
    assert kinds["empty"] == [0, [None]]
    assert re.search(
        "InvalidArgumentError: column 'm' must have a type that can become a tensor, got MatrixUDT", kinds["matrix"]
    )


def test_vectors_round_trip_through_every_writer(facts: Any) -> None:
    rows = facts["vectors"]["rows"]
    assert rows["id"] == [*range(ROWS), 100, 101]
    expected = [np.array(vector_of(number), "float32").tolist() for number in range(ROWS)]
    assert rows["features"] == [*expected, [1, 1, 1], [1, 2, 3]]
    assert rows["maybe"] == [*([1.0] if number % 3 else None for number in range(ROWS)), [0, 5], None]


def test_vector_of_another_size_fails_the_job(facts: Any) -> None:
    assert "column 'maybe', row 0: " in facts["vectors"]["size"]
    assert "the vector must have shape (1,), got 3 elements" in facts["vectors"]["size"]
    refused = facts["vectors"]["no vectors"]
    assert refused.startswith("InvalidArgumentError: column 'features' must have a Spark type that fits ")
    assert "got double. Give nested arrays" in refused


def test_dataset_as_dataframe_round_trips(folder: Path) -> None:
    with petastore.make_reader(folder / "again", shuffle_row_groups=False) as reader:
        rows = sorted(reader, key=lambda row: int(row.id))
    assert [int(row.id) for row in rows] == list(range(ROWS))
    for row in rows:
        expected = row_of(int(row.id))
        for name in row._asdict():
            assert same(row[name], expected[name]), (int(row.id), name)


def test_dataset_as_dataframe_has_plain_types(facts: Any) -> None:
    types = facts["decoded"]["types"]
    assert types["matrix"] == types["packed"].replace("double", "array<float>") == "array<array<float>>"
    assert types["png"] == "array<array<array<smallint>>>"
    assert types["price"] == "decimal(10,4)"
    assert types["zoned"] == "timestamp"
    assert "jpeg" not in types
    assert facts["decoded"]["partitions"] == -(-ROWS // 7)


def test_dataset_as_dataframe_selects_columns(facts: Any) -> None:
    assert facts["decoded"]["some"] == ["id", "depth"]
    assert facts["decoded"]["depth"] == row_of(5)["depth"].tolist()


def test_dataset_as_dataframe_raises_for_types_unknown_to_spark(facts: Any) -> None:
    assert re.search(
        "SchemaError: field 'c' must have a type that a DataFrame can hold, got complex64", facts["decoded"]["complex"]
    )
    assert re.search("InvalidArgumentError: spark must be a Spark session, got", facts["decoded"]["arguments"])


def test_dataset_as_rdd_has_named_tuples(spark_programs: SparkPrograms) -> None:
    rdd = spark_programs.left("classic", "frames").facts["as_rdd"]
    assert rdd["names"] == ["everything_view", ["id", "i32", "maybe.text", "matrix", "ragged"]]
    assert rdd["ids"] == list(range(ROWS))
    assert all(rdd["same"])
    assert len(rdd["same"]) == 5 * ROWS
    assert rdd["types"] == ["int32", "float32"]


@pytest.mark.slow
def test_dataset_as_rdd_raises_on_connect_sessions(spark_programs: SparkPrograms) -> None:
    refused = spark_programs.left("connect", "frames").facts["as_rdd"]["refused"]
    assert refused.startswith(
        "InvalidArgumentError: spark_session must be a classic session, because Spark Connect has no RDDs. "
        "petastore.spark.dataset_as_dataframe"
    )


def test_copy_dataset_selects_columns_and_rows(folder: Path, facts: Any) -> None:
    copies = facts["copies"]
    kept = [n for n in range(ROWS) if row_of(n)["i32"] is not None and row_of(n)["maybe.text"] is not None]
    assert copies["rows"]["id"] == kept
    assert list(copies["rows"]) == ["id", "maybe.text", "ragged"]
    assert sum(copies["row groups"]) == len(kept)
    assert set(copies["row groups"][:-1]) == {5}
    assert copies["files"] == 1
    for number, ragged in zip(kept, copies["rows"]["ragged"], strict=True):
        expected = row_of(number)["ragged"]
        assert ragged == (None if expected is None else expected.tolist())
    assert petastore.open_dataset(folder / "copy").schema.fields["id"] == SCHEMA.fields["id"]


def test_copy_dataset_contains_partition_values(facts: Any) -> None:
    assert facts["copies"]["days"] == {"id": list(range(6)), "day": ["000", "001"] * 3}


def test_copy_dataset_overwrites_only_on_request(facts: Any) -> None:
    assert facts["copies"]["there already"].startswith("DatasetExistsError: ")
    assert facts["copies"]["overwritten"] == {"id": list(range(ROWS))}


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("into itself", "InvalidArgumentError: the target must be outside the source"),
        ("unknown", "InvalidArgumentError: "),
        ("unknown filled", "InvalidArgumentError: "),
        ("plain", "SchemaError: the source must have a schema, got plain Parquet in"),
        ("count", "InvalidArgumentError: partitions_count must be an int of at least 1, got 0"),
    ],
)
def test_copy_dataset_raises_for_invalid_sources(facts: Any, folder: Path, case: str, part: str) -> None:
    assert re.match(part, facts["copies"][case])
    assert not (folder / "copy2").exists()


def test_copy_dataset_leaves_nothing_when_the_job_fails(facts: Any) -> None:
    assert facts["a_job_that_fails"] == {"raised": [True, True], "left": []}


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("dtype", "dtype must be 'float32', 'float64' or None, got 'float16'"),
        ("bzip2", "Parquet has no bzip2"),
        ("codec", "compression_codec must be one of uncompressed, gzip, lz4, snappy, zstd, deflate, got 'best'"),
        ("size", "parquet_row_group_size_bytes must be an int of at least 1, got 0"),
    ],
)
def test_copy_dataset_invalid_arguments_raise(facts: Any, case: str, part: str) -> None:
    assert facts["refusals"][case].startswith("InvalidArgumentError: ")
    assert part in facts["refusals"][case]


def test_converter_directories_use_the_registered_delete_handler(facts: Any) -> None:
    assert facts["another_way_to_delete"]


def test_converter_directories_are_removed_at_exit(folder: Path, facts: Any) -> None:
    assert facts["a fork removes nothing"]
    assert not Path(facts["kept until the end"]).exists()
    left = {path.name for path in (folder / "parent").iterdir()}
    # A custom delete handler is responsible for its directory; everything else is removed, including leases.
    assert {name for name in left if not is_directory_name(name)} == {"somebody's"}
    assert len(left) == 2
