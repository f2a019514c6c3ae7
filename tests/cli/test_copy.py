"""Tests of `petastore copy` without Spark: local and remote files, and invalid options before Spark starts.

`tests/spark/test_copy_command.py` tests it with Spark.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, make_reader, open_dataset, write_dataset
from tests.cli.command import petastore
from tests.servers.fixtures import MOTO_KEYS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("name", str, nullable=True)])
    rows = [{"id": n, "name": f"user {n}" if n % 2 else None} for n in range(10)]
    write_dataset(tmp_path / "users", schema, rows)
    return tmp_path / "users"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--spark-session-config", "memory"], "the form key=value"),
        (["--master", "yarn"], "call petastore.spark.copy_dataset"),
        (["--storage-options", "x"], "is not JSON"),
    ],
)
def test_copy_reports_invalid_arguments_before_spark_starts(
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


def rows_of(url: Path | str, **options: Any) -> list[dict[str, Any]]:
    with make_reader(str(url), shuffle_row_groups=False, **options) as reader:
        return [{name: np.asarray(value).tolist() for name, value in row._asdict().items()} for row in reader]


@pytest.mark.usefixtures("without_spark")
def test_copy_copies_local_files_without_spark(source: Path, tmp_path: Path) -> None:
    ran = petastore("copy", source, tmp_path / "copy", "--partition-count", "2")
    line = f"{tmp_path / 'copy'}: copied 2 files, 2 row groups, 10 rows\n"
    assert (ran.exit_code, ran.stdout, ran.stderr) == (0, line, "")
    assert open_dataset(tmp_path / "copy").schema == open_dataset(source).schema
    assert rows_of(tmp_path / "copy") == rows_of(source)
    assert len(open_dataset(tmp_path / "copy").paths) == 2
    again = petastore("copy", source, tmp_path / "copy")
    assert again.exit_code == 2
    assert "--overwrite-output" in again.stderr
    assert petastore("copy", source, tmp_path / "copy", "--overwrite-output").exit_code == 0
    assert rows_of(tmp_path / "copy") == rows_of(source)


@pytest.mark.usefixtures("without_spark")
def test_copy_copies_plain_parquet(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "plain" / "0.parquet")
    assert petastore("copy", tmp_path / "plain", tmp_path / "copy").exit_code == 0
    assert rows_of(tmp_path / "copy") == [{"id": 1}, {"id": 2}]


def test_copy_help_shows_the_default_row_group_size() -> None:
    shown = " ".join(petastore("copy", "--help", COLUMNS="200").stdout.split())
    assert "Approximate row-group size in MiB; default: 32." in shown


@pytest.mark.usefixtures("without_spark")
def test_copy_selects_columns_and_rows_without_spark(source: Path, tmp_path: Path) -> None:
    ran = petastore("copy", source, tmp_path / "copy", "--field-regex", "i.", "--not-null-fields", "name")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert rows_of(tmp_path / "copy") == [{"id": number} for number in range(1, 10, 2)]


@pytest.mark.server
@pytest.mark.leaves_running("obstore keeps its threads")
@pytest.mark.usefixtures("without_spark")
def test_objects_of_s3_are_copied_without_spark(source: Path, moto: int) -> None:
    import boto3

    endpoint, bucket = f"http://127.0.0.1:{moto}", uuid.uuid4().hex
    keys = {"aws_access_key_id": MOTO_KEYS["key"], "aws_secret_access_key": MOTO_KEYS["secret"]}
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys)
    client.create_bucket(Bucket=bucket)
    storage = {**MOTO_KEYS, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    asked = ["--storage-options", json.dumps(storage)]
    ran = petastore("copy", source, f"s3://{bucket}/users", *asked)
    assert (ran.exit_code, ran.stderr) == (0, "")
    for more in ([], ["--overwrite-output"]):
        ran = petastore("copy", f"s3://{bucket}/users", f"s3://{bucket}/copy", *asked, *more)
        assert (ran.exit_code, ran.stderr) == (0, "")
        assert rows_of(f"s3://{bucket}/copy", storage_options=storage) == rows_of(source)
    ran = petastore("copy", f"s3://{bucket}/users", f"s3://{bucket}/copy", *asked)
    assert (ran.exit_code, len(ran.stderr.splitlines())) == (2, 1)
    assert "must be empty" in ran.stderr
    ran = petastore("copy", f"s3://{bucket}/users", f"s3://{bucket}/users/inside", *asked)
    assert (ran.exit_code, len(ran.stderr.splitlines())) == (2, 1)
    assert "outside the source" in ran.stderr
