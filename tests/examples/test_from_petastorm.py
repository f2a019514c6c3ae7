"""Tests of the examples in `examples/from_petastorm`: Petastorm programs run unchanged with petastore."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from petastore.spark.java import use_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.tf, pytest.mark.timeout(600)]

EXAMPLES = ("hello_world", "external_dataset", "mnist", "imagenet", "converter")
Printed = Callable[[str], list[str]]


@pytest.fixture(scope="module")
def printed(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """Run all examples in one process, with Spark on this machine only; return a function from example to lines."""
    folder = tmp_path_factory.mktemp("from_petastorm")
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }
    use_java(environment)
    programs = [f"examples.from_petastorm.{example}" for example in EXAMPLES]
    command = [sys.executable, "-m", "petastore.interop.petastorm", "tests/examples/one_after_another.py"]
    # The runner puts its own folder on the path, as Python does, so the repository is added for the examples.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(repository), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*command, str(folder), *programs], cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

    def lines(example: str) -> list[str]:
        problem = folder / f"{example}.problem"
        assert not problem.exists(), problem.read_text(encoding="utf-8")
        return (folder / f"{example}.txt").read_text(encoding="utf-8").splitlines()

    return lines


def test_petastorm_hello_world_example_runs(printed: Printed) -> None:
    lines = printed("hello_world")
    assert sorted(lines[:10]) == sorted(f"python {number} (128, 256, 3) (4, 128, 30, 3)" for number in range(10))
    assert lines[10:13] == [f"torch {rows} ({rows}, 128, 256, 3)" for rows in (4, 4, 2)]
    assert sorted(lines[13:]) == sorted(f"tensorflow {number} (128, 256, 3)" for number in range(10))


def test_petastorm_plain_parquet_example_runs(printed: Printed) -> None:
    assert printed("external_dataset") == [
        "python 100",
        f"predicate {list(range(0, 100, 10))}",
        "torch 200 ['id', 'value2']",
        "tensorflow 100",
    ]


def test_petastorm_mnist_example_trains(printed: Printed) -> None:
    (line,) = printed("mnist")
    found = re.fullmatch(r"right (0\.\d+)", line)
    assert found is not None, line
    assert float(found[1]) > 0.85


def test_petastorm_imagenet_example_runs(printed: Printed) -> None:
    lines = printed("imagenet")
    assert lines[:-1] == ["batch (5, 3, 32, 32)", "batch (5, 3, 32, 32)", "batch (2, 3, 32, 32)"]
    assert lines[-1] == "nouns ['n01440764', 'n02099601', 'n04254680']"


def test_petastorm_spark_converter_example_trains(printed: Printed) -> None:
    lines = [line.split() for line in printed("converter")]
    assert lines[0] == ["rows", "480", "160"]
    assert [line[0] for line in lines[1:3]] == ["torch", "tensorflow"]
    assert min(float(line[1]) for line in lines[1:3]) > 0.9
    assert lines[3] == ["left", "[]"]
