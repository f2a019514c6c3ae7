"""`petastore copy` starts Spark, copies what was asked for, and says what is there now."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import petastore
from petastore import Unischema, UnischemaField
from tests.pace import patience


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "petastore.cli", "copy", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(110))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("name", str, nullable=True)])
    rows = [{"id": n, "name": f"user {n}" if n % 2 else None} for n in range(10)]
    petastore.write_dataset(tmp_path / "users", schema, rows)
    return tmp_path / "users"


@pytest.mark.spark
@pytest.mark.slow
def test_columns_and_rows_that_are_asked_for_are_copied(source: Path, tmp_path: Path) -> None:
    options = ["--field-regex", "i.", "--not-null-fields", "name", "--partition-count", "1", "--row-group-size-mb", "1"]
    ran = run(source, tmp_path / "copy", *options, "--spark-session-config", "spark.sql.shuffle.partitions=1")
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert ran.stdout.splitlines()[-1] == "Inventory(1 file, 1 row group, 5 rows)"
    with petastore.make_reader(tmp_path / "copy") as reader:
        assert sorted(int(row.id) for row in reader) == [1, 3, 5, 7, 9]
        assert list(reader.schema.fields) == ["id"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--spark-session-config", "memory"], "written as key=value"),
        (["--master", "yarn"], "call petastore.spark.copy_dataset"),
        (["--storage-options", "x"], "is no JSON"),
    ],
)
def test_what_cannot_be_is_said_in_one_line_before_spark_is_started(
    source: Path, tmp_path: Path, options: list[str], problem: str
) -> None:
    ran = run(source, tmp_path / "copy", *options)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert problem in ran.stderr
