"""Tests of `cur_shard="auto"` and `Shard` objects in all functions, and of the warning for readers without a shard."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.torch import ReaderDataset
from petastore.distributed import Shard
from petastore.distributed.current import asked_shard
from petastore.errors import InvalidArgumentError, UnshardedReaderWarning
from petastore.spark import make_spark_converter
from tests.distributed.launched import ROWS, environment_of
from tests.pace import LONG

LAUNCHERS = ["horovod", "openmpi", "mpich", "torchrun", "slurm", "tensorflow"]


def launch(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)


def ids_of(url: str, **asked: Any) -> list[int]:
    with petastore.make_reader(url, seed=1, shuffle_rows=True, **asked) as reader:
        return [int(row.id) for row in reader]


def ids_of_batches(url: str, **asked: Any) -> list[int]:
    with petastore.make_batch_reader(url, **asked) as reader:
        return [int(each) for batch in reader for each in batch.id]


def ids_of_a_mixture(url: str, **asked: Any) -> list[int]:
    with petastore.make_mixed_reader([url], [1], **asked) as reader:
        return [int(row.id) for row in reader]


def ids_of_a_torch_dataset(url: str, **asked: Any) -> list[int]:
    return [int(each) for batch in ReaderDataset(url, batch_size=5, **asked) for each in batch["id"]]


def ids_of_a_converter(url: str, **asked: Any) -> list[int]:
    with make_spark_converter(url).make_torch_dataloader(batch_size=5, num_epochs=1, **asked) as loader:
        return [int(each) for batch in loader for each in batch["id"]]


READS = [ids_of, ids_of_batches, ids_of_a_mixture, ids_of_a_torch_dataset, ids_of_a_converter]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
def test_cur_shard_auto_works_with_any_number_of_ranks(
    ranks: int, numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        launch(monkeypatch, environment_of("mpich", rank, ranks))
        seen += ids_of(numbers, cur_shard="auto")
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_cur_shard_auto_equals_the_explicit_shard(launcher: str, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ids_of(numbers, cur_shard=1, shard_count=3)
    assert ids_of(numbers, cur_shard=Shard(1, 3)) == given
    launch(monkeypatch, environment_of(launcher, 1, 3))
    assert ids_of(numbers, cur_shard="auto") == given


@pytest.mark.parametrize("read", READS)
def test_cur_shard_accepts_auto_and_shard_objects_in_every_function(
    read: Callable[..., list[int]], numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = read(numbers, cur_shard=1, shard_count=2)
    assert 0 < len(given) < ROWS
    assert read(numbers, cur_shard=Shard(1, 2)) == given
    launch(monkeypatch, environment_of("torchrun", 1, 2))
    assert read(numbers, cur_shard="auto") == given


def test_cur_shard_auto_is_detected_once_at_the_call(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, environment_of("torchrun", 1, 2))
    with petastore.make_reader(numbers, cur_shard="auto", num_epochs=2) as reader:
        launch(monkeypatch, environment_of("torchrun", 0, 1))
        assert reader.plan.request.shard == Shard(1, 2)
        assert len(list(reader)) == pytest.approx(ROWS, abs=1)


def test_cur_shard_auto_raises_when_no_rank_is_known(numbers: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"the rank of this process is unknown: Horovod, torch\.distributed, JAX, Ray Train and Spark",
    ):
        ids_of(numbers, cur_shard="auto")


@pytest.mark.parametrize(
    ("cur_shard", "shard_count", "said"),
    [
        ("auto", 2, "shard_count must be left out with cur_shard='auto', which detects it, got 2"),
        (
            "automatic",
            None,
            "must be an int, a Shard, 'auto' or None, got the str 'automatic'. Pass the rank as an int",
        ),
        ("1", 2, "must be an int, a Shard, 'auto' or None, got the str '1'. Pass 1$"),
        (
            Shard(0, 2),
            2,
            r"shard_count must be left out with cur_shard=Shard\(index=0, count=2\), which includes it, got 2",
        ),
        (0, None, "cur_shard and shard_count must be given together, got"),
        (None, 2, "cur_shard and shard_count must be given together, got"),
        (1.0, 2, r"cur_shard must be an int of at least 0, got 1\.0"),
    ],
)
def test_shard_invalid_arguments_raise(cur_shard: Any, shard_count: int | None, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        asked_shard(cur_shard, shard_count)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_reader_without_a_shard_warns_at_the_call(launcher: str, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch(monkeypatch, environment_of(launcher, 1, 2))
    with pytest.warns(UnshardedReaderWarning, match="rank 1 of 2") as warned:
        assert sorted(ids_of(numbers)) == list(range(ROWS))
    (warning,) = warned
    assert warning.filename == __file__
    assert 'cur_shard="auto"' in str(warning.message)
    assert "cur_shard=0, shard_count=1" in str(warning.message)


@pytest.mark.parametrize("read", READS)
def test_unsharded_reader_warning_is_given_once(
    read: Callable[..., list[int]], numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, environment_of("torchrun", 1, 2))
    with pytest.warns(UnshardedReaderWarning) as warned:
        everything = read(numbers)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert sorted(everything) == list(range(ROWS))
    assert sorted(read(numbers, cur_shard=0, shard_count=1)) == list(range(ROWS))
    assert sorted(read(numbers, cur_shard=Shard())) == list(range(ROWS))


BATCH_SCRIPT = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WORLD_SIZE": "2"},
        {"RANK": "here", "WORLD_SIZE": "there"},
        {"TF_CONFIG": "{"},
        environment_of("slurm", 0, 1),
        environment_of("torchrun", 0, 1) | environment_of("slurm", 1, 2),
        BATCH_SCRIPT,
        {"TF_CONFIG": json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}})},
    ],
)
def test_unsharded_reader_warning_needs_a_launcher(
    environment: dict[str, str], numbers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(monkeypatch, environment)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids_of(numbers)


LAUNCHED_BY_TORCHRUN = """
import json, os, sys, warnings
from pathlib import Path
import petastore

def same(row):
    return row

url, out = sys.argv[1], Path(sys.argv[2])
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with petastore.make_reader(url) as reader:
        everything = sum(1 for _ in reader)
transform = petastore.TransformSpec(same)
with petastore.make_reader(
    url, cur_shard="auto", reader_pool_type="process", workers_count=2, transform_spec=transform
) as reader:
    ids = [int(row.id) for row in reader]
said = [[each.category.__name__, each.filename] for each in warned]
(out / os.environ["RANK"]).write_text(json.dumps([everything, said, ids]))
"""


@pytest.mark.slow
def test_torchrun_ranks_are_detected_and_missing_shards_warn(numbers: str, tmp_path: Path) -> None:
    """The worker processes of a reader also have the launcher's variables, but do not warn."""
    program = tmp_path / "program.py"
    program.write_text(LAUNCHED_BY_TORCHRUN)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ran = subprocess.run(
        [*torchrun, program, numbers, tmp_path], capture_output=True, text=True, check=False, timeout=LONG
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    ranks = [json.loads((tmp_path / str(rank)).read_text()) for rank in range(2)]
    for everything, warned, _ in ranks:
        assert everything == ROWS
        assert warned == [["UnshardedReaderWarning", str(program)]]
    assert sorted(ranks[0][2] + ranks[1][2]) == list(range(ROWS))
    assert "UnshardedReaderWarning" not in ran.stderr


class CountedEnvironment(dict[str, str]):
    """Environment that counts how often variables are read."""

    looks = 0

    def get(self, *name: Any) -> Any:
        self.looks += 1
        return super().get(*name)

    def __getitem__(self, name: str) -> str:
        self.looks += 1
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self.looks += 1
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("each variable of the environment is read")


def test_rank_detection_without_launcher_reads_few_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes most of a microsecond, and every new reader detects its rank."""
    environment = CountedEnvironment({f"VARIABLE_{number}": "x" for number in range(100)})
    monkeypatch.setattr(os, "environ", environment)
    assert asked_shard(None, None) == Shard()
    assert 0 < environment.looks <= 20
