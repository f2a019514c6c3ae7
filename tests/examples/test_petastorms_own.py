"""Petastorm's own examples, as its last release has them, run through the switch without an edit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from petastore.spark.java import use_java

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.tf]

PETASTORM = Path(sys.prefix) / "petastorm"
"""What `make test-all` unpacks of Petastorm's wheel; on nobody's path."""

PROGRAMS = Path(__file__).parent / "petastorms_own"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with Petastorm's examples, and without Petastorm."""
    folder = tmp_path_factory.mktemp("petastorms")
    shutil.copytree(PETASTORM / "examples", folder / "examples")
    return folder


def run(examples: Path, program: str, folder: Path) -> str:
    """What a program prints; its Spark finds Java, runs this Python and listens on this machine only."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(examples), str(PROGRAMS / "stands_in"), os.environ.get("PYTHONPATH", "")]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }
    use_java(environment)
    command = [sys.executable, "-m", "petastore.interop.petastorm", str(PROGRAMS / f"{program}.py"), str(folder)]
    done = subprocess.run(command, cwd=examples, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def parts_of(printed: str) -> dict[str, str]:
    """What was printed below each line that begins with `==`."""
    return dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", printed, re.MULTILINE))


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def test_hello_worlds_are_read_by_python_torch_tensorflow_and_spark(examples: Path, tmp_path: Path) -> None:
    parts = parts_of(run(examples, "hello_world", tmp_path))
    assert sorted(numbers_in(parts["python_hello_world"])) == list(range(10))
    assert re.fullmatch(r"tensor\(\[\d\], dtype=torch.int32\)\n", parts["pytorch_hello_world"])
    assert len(numbers_in(parts["tensorflow_hello_world"])) == 2  # one by tf_tensors, one by make_petastorm_dataset
    assert "Number of rows in the dataset: 10" in parts["pyspark_hello_world"]
    ids = re.findall(r"id: \[([\d ]+)\]", parts["python_hello_world of batches"])
    assert sorted(number for some in ids for number in numbers_in(some)) == list(range(10))
    assert re.match(r"id batch: tensor\(\[\d\]\)", parts["pytorch_hello_world of batches"])
    assert len(re.findall(r"id batch: \[[\d ]+\]", parts["tensorflow_hello_world of batches"])) == 2


def test_digits_are_learned_by_torch_and_by_graphs_of_tensorflow(examples: Path, tmp_path: Path) -> None:
    printed = run(examples, "mnist", tmp_path)
    of_torch = [int(percent) for percent in re.findall(r"Accuracy: \d+/297 \((\d+)%\)", printed)]
    assert len(of_torch) == 2
    assert of_torch[-1] > 50
    of_tensorflow = [float(share) for share in re.findall(r"the accuracy of the model is: (\d\.\d\d)", printed)]
    assert len(of_tensorflow) == 4
    assert of_tensorflow[-1] > 0.5


def test_converted_dataframes_are_learned_here_and_in_a_worker_of_spark(examples: Path, tmp_path: Path) -> None:
    parts = parts_of(run(examples, "converters", tmp_path))
    printed = {
        framework: parts[f"examples.spark_dataset_converter.{framework}_converter_example"]
        for framework in ("pytorch", "tensorflow")
    }
    shares = {
        framework: [float(share) for share in re.findall(r"^Accuracy: (\d\.\d+)$", text, re.MULTILINE)]
        for framework, text in printed.items()
    }
    assert len(shares["tensorflow"]) == len(shares["pytorch"]) == 2
    assert min(shares["tensorflow"]) > 0.7
    # A hundred steps of its learning rate teach the network of PyTorch nothing; it sees all batches of them.
    losses = [float(loss) for loss in re.findall(r"^\[\d+/100\]\tLoss: (\d+\.\d+)$", printed["pytorch"], re.MULTILINE)]
    assert len(losses) >= 11
    assert min(losses) > 1.5
    assert max(losses) < 3
