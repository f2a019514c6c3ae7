"""`petastore copy` rejects wrong options before Spark starts; `tests/spark/test_copy_command.py` copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore import Unischema, UnischemaField, write_dataset
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
