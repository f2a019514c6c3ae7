"""Tests of Petastorm's own examples from its last release, which run unchanged with petastore."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from petastore.spark.java import use_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.tf, pytest.mark.timeout(600)]

PETASTORM = Path(sys.prefix) / "petastorm"
"""Folder into which `make test-all` unpacks Petastorm's wheel; it is not on `sys.path`."""

PROGRAMS = Path(__file__).parent / "petastorms_own"


Printed = Callable[[str], str]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """Run all programs in one process, with Spark on this machine only; return a function from program to output."""
    examples = tmp_path_factory.mktemp("petastorms")  # Petastorm's examples without Petastorm itself
    shutil.copytree(PETASTORM / "examples", examples / "examples")
    folder = tmp_path_factory.mktemp("printed")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(examples), str(PROGRAMS / "stands_in"), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }
    use_java(environment)
    # The last one disables TensorFlow's eager execution, which the others need.
    programs = [str(PROGRAMS / f"{program}.py") for program in ("mnist", "converters", "hello_world")]
    together = str(PROGRAMS.parent / "one_after_another.py")
    command = [sys.executable, "-m", "petastore.interop.petastorm", together, str(folder), *programs]
    done = subprocess.run(command, cwd=examples, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    def text(program: str) -> str:
        problem = folder / f"{program}.problem"
        assert not problem.exists(), problem.read_text(encoding="utf-8")
        return (folder / f"{program}.txt").read_text(encoding="utf-8")

    return text


def parts_of(printed: str) -> dict[str, str]:
    """Return the output below each line that begins with `==`."""
    return dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", printed, re.MULTILINE))


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_hello_world_examples_of_petastorm_run_unchanged(printed: Printed) -> None:
    parts = parts_of(printed("hello_world"))
    assert sorted(numbers_in(parts["python_hello_world"])) == list(range(10))
    assert re.fullmatch(r"tensor\(\[\d\], dtype=torch.int32\)\n", parts["pytorch_hello_world"])
    assert len(numbers_in(parts["tensorflow_hello_world"])) == 2  # one by tf_tensors, one by make_petastorm_dataset
    assert "Number of rows in the dataset: 10" in parts["pyspark_hello_world"]
    ids = re.findall(r"id: \[([\d ]+)\]", parts["python_hello_world of batches"])
    assert sorted(number for some in ids for number in numbers_in(some)) == list(range(10))
    assert re.match(r"id batch: tensor\(\[\d\]\)", parts["pytorch_hello_world of batches"])
    assert len(re.findall(r"id batch: \[[\d ]+\]", parts["tensorflow_hello_world of batches"])) == 2


def test_mnist_examples_of_petastorm_train_unchanged(printed: Printed) -> None:
    lines = printed("mnist")
    of_torch = [int(percent) for percent in re.findall(r"Accuracy: \d+/297 \((\d+)%\)", lines)]
    assert len(of_torch) == 2
    assert of_torch[-1] > 50
    of_tensorflow = [float(share) for share in re.findall(r"the accuracy of the model is: (\d\.\d\d)", lines)]
    assert len(of_tensorflow) == 4
    assert of_tensorflow[-1] > 0.5


def test_spark_converter_examples_of_petastorm_train_unchanged(printed: Printed) -> None:
    parts = parts_of(printed("converters"))
    said = {
        framework: parts[f"examples.spark_dataset_converter.{framework}_converter_example"]
        for framework in ("pytorch", "tensorflow")
    }
    shares = {
        framework: [float(share) for share in re.findall(r"^Accuracy: (\d\.\d+)$", text, re.MULTILINE)]
        for framework, text in said.items()
    }
    assert len(shares["tensorflow"]) == len(shares["pytorch"]) == 2
    assert min(shares["tensorflow"]) > 0.7
    # With its learning rate, PyTorch learns little in a hundred steps; the losses show that it read all batches.
    losses = [float(loss) for loss in re.findall(r"^\[\d+/100\]\tLoss: (\d+\.\d+)$", said["pytorch"], re.MULTILINE)]
    assert len(losses) >= 11
    assert min(losses) > 1.5
    assert max(losses) < 3
