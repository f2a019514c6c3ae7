"""Tests of an elastic Horovod job: hosts change, a worker dies, and each row is committed once per epoch."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run
from neighbours.horovod.elastic_worker import EPOCHS

HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2", "--min-np", "1", "--max-np", "3"]
# Five workers start one after another and import torch and Horovod, and Horovod polls the hosts once a second. That
# takes a minute on an idle machine.
SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Trained:
    """The rows of all workers of a job in the steps that count, which no restore rolled back."""

    ranks: list[int]
    """The number of ranks between changes."""
    taken_back: int
    """Steps that were repeated after the death of a worker."""
    missing: list[int]
    """Rows of each epoch that no worker trained on."""
    repeated: list[int]
    """Repeated rows of each epoch."""


Job = Callable[..., Trained]


@pytest.fixture
def job(run: Run, numbered: Callable[..., str], tmp_path: Path) -> Job:
    """Return a function that runs an elastic job with one of the worker's ways to shard rows."""

    def run_job(way: str, *, every: int = 1, doomed: str = "nobody") -> Trained:
        numbered()
        (tmp_path / "hosts").write_text("localhost:1\n127.0.0.1:1\n", encoding="utf-8")
        script = tmp_path / "hosts.sh"
        script.write_text('#!/bin/sh\ncat "$(dirname "$0")/hosts"\n', encoding="utf-8")
        script.chmod(0o755)
        worker = ["python", "-m", "neighbours.horovod.elastic_worker", str(tmp_path), way, str(every), doomed]
        # Milliseconds between polls of Horovod's background thread; the default of 1 takes CPU while ranks wait.
        often = {"HOROVOD_CYCLE_TIME": "10"}
        run([*HOROVODRUN, "--host-discovery-script", str(script), *worker], environment=often, seconds=SECONDS)
        return trained(tmp_path)

    return run_job


def trained(folder: Path) -> Trained:
    files = [file.read_text(encoding="utf-8").splitlines() for file in folder.glob("trained-*.jsonl")]
    lines = sorted((json.loads(line) for file in files for line in file), key=lambda line: (line["step"], line["time"]))
    steps = [list(of_step) for _, of_step in itertools.groupby(lines, key=lambda line: line["step"])]
    last = [of_step[-of_step[-1]["ranks"] :] for of_step in steps]  # rolled-back steps were written earlier
    assert [sorted(line["rank"] for line in of_step) for of_step in last] == [
        list(range(of_step[-1]["ranks"])) for of_step in last
    ]
    ranks = [len(of_step) for of_step in last]
    ids = [collections.Counter[int]() for _ in range(EPOCHS)]
    for line in itertools.chain(*last):
        ids[line["epoch"]].update(line["ids"])
    return Trained(
        ranks=[count for number, count in enumerate(ranks) if number == 0 or count != ranks[number - 1]],
        taken_back=sum(len(of_step) > len(counts) for of_step, counts in zip(steps, last, strict=True)),
        missing=[sum(UNEVEN) - len(of_epoch) for of_epoch in ids],
        repeated=[of_epoch.total() - len(of_epoch) for of_epoch in ids],
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("every", "doomed", "ranks", "taken_back"),
    [
        (1, "127.0.0.1", [2, 1, 2, 3, 2, 1], 0),
        (3, "localhost", [2, 1, 2, 3, 1], 2),  # rank 0 dies, and its host is excluded; the last commit was step 18
    ],
    ids=["each step", "each third step, rank 0 dies"],
)
def test_elastic_loader_yields_each_row_once_when_ranks_change(
    job: Job, every: int, doomed: str, ranks: list[int], taken_back: int
) -> None:
    """Two ranks, one, two, three, of which one dies, and finally one: growth, shrinking and death."""
    found = job("reader", every=every, doomed=doomed)
    assert found == Trained(ranks, taken_back, missing=[0, 0], repeated=[0, 0])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["sampler", "told-sampler"])
def test_horovod_elastic_sampler_loses_or_repeats_rows(way: str, job: Job) -> None:
    """The baseline: the sampler is not notified of removed ranks; with a reset callback it still pads the shares."""
    found = job(way)
    assert found.ranks == [2, 1, 2]
    assert sum(found.repeated) > 0
    assert (sum(found.missing) > 0) == (way == "sampler")
