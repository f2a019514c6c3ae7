"""`petastore copy` copies local files without Spark, and rejects wrong options before Spark starts.

`tests/spark/test_copy_command.py` copies with Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from tests.cli.command import petastore


@pytest.fixture
def source(tmp_path: Path) -> Path:
    schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("name", str, nullable=True)])
    rows = [{"id": n, "name": f"user {n}" if n % 2 else None} for n in range(10)]
    write_dataset(tmp_path / "users", schema, rows)
    return tmp_path / "users"


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
    ran = petastore("copy", source, tmp_path / "copy", *options)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert problem in ran.stderr


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyspark", "petastore.spark"):
        monkeypatch.setitem(sys.modules, name, None)


def rows_of(url: Path) -> list[dict[str, Any]]:
    with make_reader(str(url), shuffle_row_groups=False) as reader:
        return [{name: np.asarray(value).tolist() for name, value in row._asdict().items()} for row in reader]


@pytest.mark.usefixtures("without_spark")
def test_local_files_are_copied_without_spark(source: Path, tmp_path: Path) -> None:
    ran = petastore("copy", source, tmp_path / "copy", "--partition-count", "2")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert open_dataset(tmp_path / "copy").schema == open_dataset(source).schema
    assert rows_of(tmp_path / "copy") == rows_of(source)
    assert len(open_dataset(tmp_path / "copy").paths) == 2
    again = petastore("copy", source, tmp_path / "copy")
    assert again.exit_code == 2
    assert "is not empty" in again.stderr
    assert petastore("copy", source, tmp_path / "copy", "--overwrite-output").exit_code == 0
    assert rows_of(tmp_path / "copy") == rows_of(source)


@pytest.mark.usefixtures("without_spark")
def test_columns_and_rows_are_chosen_without_spark(source: Path, tmp_path: Path) -> None:
    ran = petastore("copy", source, tmp_path / "copy", "--field-regex", "i.", "--not-null-fields", "name")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert rows_of(tmp_path / "copy") == [{"id": number} for number in range(1, 10, 2)]
