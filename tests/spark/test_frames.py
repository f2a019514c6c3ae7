"""DataFrames become batches, and datasets become DataFrames, alike on classic and Connect sessions: see `frames.py`."""

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


def test_a_converter_needs_a_parent_directory_and_says_which_key_names_it(facts: Any) -> None:
    assert facts["no_parent"].startswith("InvalidArgumentError: ")
    assert "petastore.spark.caching.converter.parentCacheDirUrl" in facts["no_parent"]


def test_petastorms_key_names_the_parent_too(facts: Any) -> None:
    assert facts["petastorms_key"]


def test_what_a_crash_left_is_removed_by_the_next_converter_and_nothing_else_is(facts: Any) -> None:
    assert facts["what_a_crash_left"] == {"was there": True, "removed": True, "others stay": True}


def test_all_rows_are_stored_in_a_directory_of_their_own(facts: Any) -> None:
    stored = facts["stored"]
    assert stored["len"] == ROWS
    assert stored["url"]
    assert is_directory_name(stored["name"])
    assert stored["declared"]
    assert stored["compression"] == ["UNCOMPRESSED"]


def test_vectors_and_arrays_of_one_length_have_a_shape_and_floats_one_dtype(facts: Any) -> None:
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


def test_the_values_are_those_of_the_dataframe(facts: Any) -> None:
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


def test_time_stamps_of_any_year_are_kept(facts: Any) -> None:
    """INT96, in which Spark would write them, ends in 1677."""
    when = np.array(facts["stored"]["rows"]["when"], "datetime64[us]")
    assert np.array_equal(when, np.datetime64("1500-01-02", "us") + np.arange(ROWS).astype("timedelta64[D]"))


def test_dense_and_sparse_vectors_become_one_tensor(facts: Any) -> None:
    dtype, values = facts["stored"]["tensor"]
    assert dtype == "torch.float32"
    assert np.array_equal(np.array(values, "float32"), np.array([vector_of(n) for n in range(ROWS)], "float32"))


def test_floats_are_cast_only_as_asked(facts: Any) -> None:
    floats = {"features": "float64", "x": "float64", "even": "float64", "grid.2": "float64"}
    assert facts["dtypes"] == {
        "None": {"id": "int64", **floats, "f": "float32"},
        "float64": {"id": "int64", **floats, "f": "float64"},
    }


def test_rows_are_stored_once_for_each_plan_its_files_and_the_way_of_storing(facts: Any) -> None:
    reuse = facts["reuse"]
    assert reuse["same"]
    assert reuse["others"] == 6
    assert reuse["rows"] == [5, 5, 5, 5, 3, 12]


def test_threads_that_ask_for_the_same_rows_at_once_store_them_once(facts: Any) -> None:
    assert facts["reuse"]["threads"] == 1


def test_a_directory_lives_until_its_last_converter_is_deleted(facts: Any) -> None:
    assert facts["reuse"]["shared one outlives the first delete"]
    assert facts["reuse"]["stored again"] == [True, True, True]


def test_columns_without_a_tensor_leave_the_others_readable(facts: Any) -> None:
    kinds = facts["kinds_of_columns"]
    assert kinds["map"] == [1, False]
    assert kinds["map's rows"] == [7]
    assert kinds["empty"] == [0, [None]]
    assert re.search("InvalidArgumentError: column 'm' is of the type MatrixUDT", kinds["matrix"])


def test_vectors_are_written_through_each_door_and_come_back(facts: Any) -> None:
    rows = facts["vectors"]["rows"]
    assert rows["id"] == [*range(ROWS), 100, 101]
    expected = [np.array(vector_of(number), "float32").tolist() for number in range(ROWS)]
    assert rows["features"] == [*expected, [1, 1, 1], [1, 2, 3]]
    assert rows["maybe"] == [*([1.0] if number % 3 else None for number in range(ROWS)), [0, 5], None]


def test_a_vector_of_another_size_fails_the_job_and_another_column_the_call(facts: Any) -> None:
    assert "column 'maybe', row 0: " in facts["vectors"]["size"]
    assert "the vector has 3 elements, but (1,) is declared" in facts["vectors"]["size"]
    assert facts["vectors"]["no vectors"].startswith("InvalidArgumentError: column 'features' is double")


def test_a_dataset_as_a_dataframe_and_written_again_is_the_same(folder: Path) -> None:
    with petastore.make_reader(folder / "again", shuffle_row_groups=False) as reader:
        rows = sorted(reader, key=lambda row: int(row.id))
    assert [int(row.id) for row in rows] == list(range(ROWS))
    for row in rows:
        expected = row_of(int(row.id))
        for name in row._asdict():
            assert same(row[name], expected[name]), (int(row.id), name)


def test_decoded_columns_have_plain_types(facts: Any) -> None:
    types = facts["decoded"]["types"]
    assert types["matrix"] == types["packed"].replace("double", "array<float>") == "array<array<float>>"
    assert types["png"] == "array<array<array<smallint>>>"
    assert types["price"] == "decimal(10,4)"
    assert types["zoned"] == "timestamp"
    assert "jpeg" not in types
    assert facts["decoded"]["partitions"] == -(-ROWS // 7)


def test_some_columns_of_a_dataset_can_be_asked_for(facts: Any) -> None:
    assert facts["decoded"]["some"] == ["id", "depth"]
    assert facts["decoded"]["depth"] == row_of(5)["depth"].tolist()


def test_what_a_dataframe_has_no_type_for_is_refused(facts: Any) -> None:
    assert re.search("SchemaError: field 'c': a DataFrame has no type for complex64", facts["decoded"]["complex"])
    assert re.search("InvalidArgumentError: .* takes a Spark session first", facts["decoded"]["arguments"])


def test_an_rdd_has_the_rows_as_named_tuples(spark_programs: SparkPrograms) -> None:
    rdd = spark_programs.left("classic", "frames").facts["as_rdd"]
    assert rdd["names"] == ["everything_view", ["id", "i32", "maybe.text", "matrix", "ragged"]]
    assert rdd["ids"] == list(range(ROWS))
    assert all(rdd["same"])
    assert len(rdd["same"]) == 5 * ROWS
    assert rdd["types"] == ["int32", "float32"]


@pytest.mark.slow
def test_connect_has_no_rdds_and_the_error_names_what_it_has(spark_programs: SparkPrograms) -> None:
    refused = spark_programs.left("connect", "frames").facts["as_rdd"]["refused"]
    assert refused.startswith("InvalidArgumentError: Spark Connect has no RDDs; petastore.spark.dataset_as_dataframe")


def test_a_copy_has_the_columns_and_rows_that_were_asked_for(folder: Path, facts: Any) -> None:
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


def test_what_directories_say_is_in_the_copy_as_it_was_written(facts: Any) -> None:
    assert facts["copies"]["days"] == {"id": list(range(6)), "day": ["000", "001"] * 3}


def test_a_copy_replaces_another_dataset_only_when_told_to(facts: Any) -> None:
    assert facts["copies"]["there already"].startswith("DatasetExistsError: ")
    assert facts["copies"]["overwritten"] == {"id": list(range(ROWS))}


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("into itself", "InvalidArgumentError: the copy cannot lie at"),
        ("unknown", "InvalidArgumentError: "),
        ("unknown filled", "InvalidArgumentError: "),
        ("plain", "SchemaError: .* is plain Parquet"),
        ("count", "InvalidArgumentError: partitions_count=0"),
    ],
)
def test_a_copy_that_cannot_be_is_refused(facts: Any, folder: Path, case: str, part: str) -> None:
    assert re.match(part, facts["copies"][case])
    assert not (folder / "copy2").exists()


def test_a_job_that_fails_leaves_nothing(facts: Any) -> None:
    assert facts["a_job_that_fails"] == {"raised": [True, True], "left": []}


@pytest.mark.parametrize(
    ("case", "part"),
    [
        ("dtype", "dtype='float16' cannot be"),
        ("bzip2", "Parquet has no bzip2"),
        ("codec", "choose one of uncompressed, gzip, lz4, snappy, zstd, deflate"),
        ("size", "parquet_row_group_size_bytes=0"),
    ],
)
def test_what_cannot_be_is_refused(facts: Any, case: str, part: str) -> None:
    assert facts["refusals"][case].startswith("InvalidArgumentError: ")
    assert part in facts["refusals"][case]


def test_directories_may_be_deleted_in_another_way(facts: Any) -> None:
    assert facts["another_way_to_delete"]


def test_the_end_of_the_process_removes_its_directories_and_the_end_of_a_fork_none(folder: Path, facts: Any) -> None:
    assert facts["a fork removes nothing"]
    assert not Path(facts["kept until the end"]).exists()
    left = {path.name for path in (folder / "parent").iterdir()}
    # Whoever deletes in another way has to do it; everything else is gone, leases too.
    assert {name for name in left if not is_directory_name(name)} == {"somebody's"}
    assert len(left) == 2
