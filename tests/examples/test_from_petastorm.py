"""Petastorm's documented examples run as they are, through the switch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from petastore.spark.java import use_java

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def run(repository: Path, example: str, folder: Path) -> list[str]:
    """The lines that an example prints; its Spark finds Java, runs this Python and listens on this machine only."""
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }
    use_java(environment)
    command = [sys.executable, "-m", "petastore.interop.petastorm", "-m", f"examples.from_petastorm.{example}"]
    done = subprocess.run(
        [*command, str(folder)], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.tf
def test_hello_world_is_written_and_read_in_three_ways(repository: Path, tmp_path: Path) -> None:
    lines = run(repository, "hello_world", tmp_path / "hello")
    assert sorted(lines[:10]) == sorted(f"python {number} (128, 256, 3) (4, 128, 30, 3)" for number in range(10))
    assert lines[10:13] == [f"torch {rows} ({rows}, 128, 256, 3)" for rows in (4, 4, 2)]
    assert sorted(lines[13:]) == sorted(f"tensorflow {number} (128, 256, 3)" for number in range(10))


@pytest.mark.tf
def test_plain_parquet_is_read_in_batches(repository: Path, tmp_path: Path) -> None:
    assert run(repository, "external_dataset", tmp_path / "external") == [
        "python 100",
        f"predicate {list(range(0, 100, 10))}",
        "torch 200 ['id', 'value2']",
        "tensorflow 100",
    ]


def test_digits_are_learned(repository: Path, tmp_path: Path) -> None:
    (line,) = run(repository, "mnist", tmp_path / "mnist")
    found = re.fullmatch(r"right (0\.\d+)", line)
    assert found is not None, line
    assert float(found[1]) > 0.85


def test_images_of_many_sizes_become_batches_of_one(repository: Path, tmp_path: Path) -> None:
    lines = run(repository, "imagenet", tmp_path / "imagenet")
    assert lines[:-1] == ["batch (5, 3, 32, 32)", "batch (5, 3, 32, 32)", "batch (2, 3, 32, 32)"]
    assert lines[-1] == "nouns ['n01440764', 'n02099601', 'n04254680']"


@pytest.mark.tf
def test_a_dataframe_is_trained_on_by_both_frameworks(repository: Path, tmp_path: Path) -> None:
    lines = [line.split() for line in run(repository, "converter", tmp_path / "converter")]
    assert lines[0] == ["rows", "480", "160"]
    assert [line[0] for line in lines[1:3]] == ["torch", "tensorflow"]
    assert min(float(line[1]) for line in lines[1:3]) > 0.9
    assert lines[3] == ["left", "[]"]
