"""What type checkers see of the package: programs of users that mypy passes, and others of which it names the line.

A line of a program that is wrong ends with `# error: CODE`. All programs are checked by one run of mypy --strict.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import petastore

PACKAGE = Path(petastore.__file__).parent
ROOT = Path(__file__).parents[1]

PROGRAMS = {
    "rows": """
from petastore import col, make_reader
from petastore.predicates import in_set

with make_reader("file:///data/users", ["id", "name"], "process", 4, tail="drop", reshuffle="static") as reader:
    for row in reader:
        print(row.id, row["name"], row._asdict())
make_reader("users", filters=[("id", ">", 7), ("split", "in", ["a", "b"])])
make_reader("users", filters=[[("id", ">", 7)], [("name", "=", "Ada")]])
make_reader("users", filters=(col("id") > 7) & (col("name") == "Ada"), predicate=in_set([1], "id"))
make_reader("users", predicate=lambda row: row["id"] > 7)
make_reader("users", cache_type=None, hdfs_driver="libhdfs")
""",
    "words": """
from petastore import make_batch_reader, make_mixed_reader, make_reader, open_dataset, write_dataset
from petastore import TransformSpec, Unischema
from petastore.codecs import CompressedImageCodec

make_reader("users", tail="evn")  # error: arg-type
make_reader("users", reader_pool_type="threads")  # error: arg-type
make_reader("users", reshuffle="never")  # error: arg-type
make_batch_reader("users", cache_type="disk")  # error: arg-type
make_batch_reader("users", hdfs_driver="webhdfs")  # error: arg-type
make_mixed_reader(["a", "b"], [1, 1], stop="first")  # error: arg-type
make_mixed_reader(["a", "b"], [1, 1], batching="per source")  # error: arg-type
open_dataset("users").plan(tail="evn")  # error: arg-type
TransformSpec(takes="rows")  # error: arg-type
write_dataset("users", Unischema("user", []), [], mode="replace")  # error: arg-type
write_dataset("users", Unischema("user", []), [], compression="rar")  # error: arg-type
CompressedImageCodec("gif")  # error: arg-type
CompressedImageCodec("jpeg", quality=90)
""",
    "parameters": """
from petastore import make_batch_reader, make_reader

make_reader("users", shufle_rows=True)  # error: call-arg
make_reader("users", num_epochs="2")  # error: arg-type
make_reader(7)  # error: arg-type
make_reader("users", [1, 2])  # error: list-item
make_reader("users", filters="id > 7")  # error: arg-type
make_reader("users", predicate=7)  # error: arg-type
make_reader("users", rowgroup_selector="by_id")  # error: arg-type
make_batch_reader("users", pyarrow_serialize=True)  # error: call-arg
""",
    "batches": """
import numpy as np
from numpy.typing import NDArray

from petastore import Batch, Reader, make_reader


def ids(batch: Batch) -> NDArray[np.int64]:
    return np.asarray(batch["id"], dtype=np.int64)


def all_of(reader: Reader) -> dict[str, int]:
    return {name: len(column) for batch in reader.batches(64) for name, column in batch.items()}


with make_reader("users") as reader:
    for batch in reader.batches(64):
        print(batch.num_rows, ids(batch).shape, batch.cursor.position, batch["name"].tolist())
        print(batch.nosuch)  # error: attr-defined
        print(batch[0])  # error: index
    reader.batches("64")  # error: arg-type
    reader.nosuch  # error: attr-defined
    for row in reader:
        row + 1  # error: operator
        row()  # error: operator
""",
    "mixtures": """
from petastore import WeightedSamplingReader, make_mixed_reader, make_reader, open_dataset

make_mixed_reader(["a", open_dataset("b"), {"dataset_url": "c", "filters": [("id", ">", 7)]}], [1, 2.5, 3])
make_mixed_reader([{"dataset_url": "a", "filter": None}], [1])  # error: list-item
make_mixed_reader([{"filters": None}], [1])  # error: list-item
readers = [make_reader("a"), make_reader("b")]
WeightedSamplingReader(readers, [0.5, 0.5], batching="per_source")
WeightedSamplingReader(readers, [0.5, 0.5], batching="apart")  # error: arg-type
WeightedSamplingReader(["a", "b"], [0.5, 0.5])  # error: list-item
""",
    "windows": """
from petastore import NGram, make_reader

with make_reader("tracks", NGram({0: ["time"], 1: ["time", "speed"]}, 10, "time")) as reader:
    for window in reader:
        print(window[0].time, window[1].speed)
    for batch in reader.batches(8):
        print(batch["time"].shape)
""",
    "loaders": """
from collections.abc import Sequence
from typing import Any

import torch

from petastore import make_reader
from petastore.adapters.torch import BatchedDataLoader, DataLoader, MapDataset, Padded, ReaderDataset


def count(rows: Sequence[dict[str, Any]]) -> int:
    return len(rows)


with make_reader("users", num_epochs=None) as reader:
    for batch in DataLoader(reader, batch_size=64, ragged={"track": Padded(-1)}, nulls="mask", num_workers=0):
        total: torch.Tensor = batch["x"].sum()
        batch.nosuch  # error: attr-defined
    for number in DataLoader(reader, 64, count):
        print(number + 1)
        number.nosuch  # error: attr-defined
    DataLoader(reader, ragged="paded")  # error: arg-type
    DataLoader(reader, ragged={"track": "ragged"})  # error: dict-item
    DataLoader(reader, bach_size=64)  # error: call-arg
    DataLoader("users", 64)  # error: arg-type
    for batch in BatchedDataLoader(reader, 64, torch.as_tensor, nulls={"age": 0}):
        print(batch["x"])
    BatchedDataLoader(reader, 64, raged="list")  # error: call-arg
ReaderDataset("users", batch_size=64, tail="evn")  # error: arg-type
ReaderDataset("users", batch_size=64, reshuffle="static").set_epoch(1)
ReaderDataset("users", batch_size=64, cache_type="local-disc")  # error: arg-type
MapDataset("users", filters=[("id", "<", 7)], cache_type="local-disk")
MapDataset("users", filters=7)  # error: arg-type
MapDataset("users")[0]["x"]
""",
    "converters": """
from typing import Any

from petastore.spark import SparkDatasetConverter, make_spark_converter

converter = make_spark_converter("file:///data/points", dtype="float32")
with converter.make_torch_dataloader(64, num_epochs=1, cur_shard=0, shard_count=2, tail="drop") as loader:
    for batch in loader:
        print(batch["x"].shape)
        batch.nosuch  # error: attr-defined
converter.make_torch_dataloader(64, tail="evn")  # error: arg-type
converter.make_torch_dataloader(64, shufle_rows=True)  # error: call-arg
converter.make_tf_dataset(64, seeds=1)  # error: call-arg
make_spark_converter("file:///data/points", dtype="float16")  # error: arg-type
make_spark_converter("file:///data/points", compression_codec="zstd")
make_spark_converter("file:///data/points", compression_codec="zstandard")  # error: arg-type


def fit(reader: Any, **options: Any) -> list[int]:
    return []


with converter.make_torch_dataloader(data_loader_fn=fit) as numbers:
    print(numbers[0] + 1)
    numbers.nosuch  # error: attr-defined
""",
}
_EXPECTED = re.compile(r"# error: (\S+)$")
_FOUND = re.compile(r"^(\w+)\.py:(\d+): error: .*\[([\w-]+)\]$", re.MULTILINE)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[tuple[int, str]]]:
    """Of each program: lines and codes of the errors that mypy finds."""
    folder = tmp_path_factory.mktemp("programs")
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(program, encoding="utf-8")
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "--no-pretty", "."],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1, told.stdout + told.stderr  # errors were found, and mypy itself did not fail
    errors: dict[str, set[tuple[int, str]]] = {name: set() for name in PROGRAMS}
    for name, line, code in _FOUND.findall(told.stdout):
        errors[name].add((int(line), code))
    return errors


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_mypy_finds_what_is_wrong_in_a_users_program_and_nothing_else(
    name: str, found: dict[str, set[tuple[int, str]]]
) -> None:
    lines = enumerate(PROGRAMS[name].splitlines(), 1)
    marked = {(number, mark[1]) for number, line in lines if (mark := _EXPECTED.search(line))}
    assert found[name] == marked


def test_the_package_says_that_it_is_typed_and_wheels_take_all_of_its_files_along() -> None:
    assert (PACKAGE / "py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"] == {"targets": {"wheel": {"packages": ["petastore"]}}}
    assert "Typing :: Typed" in project["project"]["classifiers"]
    ignored = subprocess.run(["git", "check-ignore", "petastore/py.typed"], cwd=ROOT, capture_output=True, check=False)
    assert ignored.returncode == 1  # hatchling leaves out what git ignores
