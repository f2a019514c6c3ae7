"""Tests of the hello world example: written in the shared Spark session, read by each program as a command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from examples.hello_world.schema import HelloWorldSchema
from examples.hello_world.write import ROWS, row_generator
from petastore import make_reader, open_dataset
from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


def run(repository: Path, program: str, url: str) -> list[str]:
    """Return the lines that a program of the example prints."""
    command = [sys.executable, "-m", f"examples.hello_world.{program}", url]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def url(spark_programs: SparkPrograms) -> str:
    """Return the dataset's URL, written in the shared Spark session."""
    facts = spark_programs.left("classic", "hello_world").facts
    assert facts["printed"] == [f"wrote {ROWS} rows to {facts['url']}"]
    return str(facts["url"])


def test_hello_world_dataset_has_schema_and_values(url: str) -> None:
    assert open_dataset(url).schema == HelloWorldSchema
    with make_reader(url) as reader:
        rows = {int(row.id): row for row in reader}
    assert sorted(rows) == list(range(ROWS))
    for number, row in rows.items():
        expected = row_generator(number)
        assert np.array_equal(row.image1, expected["image1"])
        assert np.array_equal(row.array_4d, expected["array_4d"])


def test_hello_world_dataset_is_read_by_python(url: str, repository: Path) -> None:
    lines = run(repository, "read_python", url)
    assert sorted(lines) == sorted(
        f"{number} (128, 256, 3) {row_generator(number)['array_4d'].shape}" for number in range(ROWS)
    )


def test_hello_world_dataset_is_read_by_torch(url: str, repository: Path) -> None:
    lines = run(repository, "read_torch", url)
    assert lines[0] == "3 batches"
    assert [line.count("torch.Size([") for line in lines[1:]] == [5, 5, 3]
    assert "torch.Size([4, 128, 256, 3])" in lines[1]


@pytest.mark.tf
def test_hello_world_dataset_is_read_by_tensorflow(url: str, repository: Path) -> None:
    lines = run(repository, "read_tensorflow", url)
    assert len(lines) == ROWS + len(HelloWorldSchema) + 3
    assert (
        f"{lines[0].split()[0]} (128, 256, 3) {row_generator(int(lines[0].split()[0]))['array_4d'].shape}" == lines[0]
    )
    assert "array_4d: RaggedTensorSpec(TensorShape([None, None, 128, 30, None]), tf.uint8, 4, tf.int64)" in lines
    assert lines[-1].endswith("(2, None, 128, 30, None)")


def test_spark_reads_datasets_of_two_splits_as_one_table(spark_programs: SparkPrograms) -> None:
    splits = spark_programs.left("classic", "hello_world").facts["splits"]
    assert splits == {"rows": 10, "test": 3, "columns": ["id", "split"]}
