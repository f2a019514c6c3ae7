"""A real elastic job of Horovod: hosts come and go, a worker dies, and each row is committed once in each epoch."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run
from neighbours.horovod.elastic_worker import EPOCHS

HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2", "--min-np", "1", "--max-np", "3"]
# Five workers start one after the other, each with torch and Horovod to import, and Horovod looks at the hosts once a
# second: a minute on an idle machine.
SECONDS = 120


@dataclasses.dataclass(frozen=True)
class Committed:
    """What all workers of a job have committed."""

    ranks: list[int]
    """How many there were, from one change to the next."""
    missing: list[int]
    """Of each epoch: rows that nobody committed."""
    repeated: list[int]
    """Of each epoch: commits of rows that were committed before."""


@pytest.fixture
def job(run: Run, numbered: Callable[..., str], tmp_path: Path) -> Callable[[str], Committed]:
    """Runs an elastic job over rows that are dealt in one of the worker's ways."""

    def run_job(way: str) -> Committed:
        numbered()
        (tmp_path / "hosts").write_text("localhost:1\n127.0.0.1:1\n", encoding="utf-8")
        script = tmp_path / "hosts.sh"
        script.write_text('#!/bin/sh\ncat "$(dirname "$0")/hosts"\n', encoding="utf-8")
        script.chmod(0o755)
        worker = ["python", "-m", "neighbours.horovod.elastic_worker", str(tmp_path), way]
        run([*HOROVODRUN, "--host-discovery-script", str(script), *worker], seconds=SECONDS)
        return committed(tmp_path)

    return run_job


def committed(folder: Path) -> Committed:
    files = [file.read_text(encoding="utf-8").splitlines() for file in folder.glob("committed-*.jsonl")]
    lines = sorted((json.loads(line) for file in files for line in file), key=lambda line: line["step"])
    ranks = [line["ranks"] for line in lines]
    ids = [collections.Counter[int]() for _ in range(EPOCHS)]
    for line in lines:
        ids[line["epoch"]].update(line["ids"])
    return Committed(
        ranks=[count for number, count in enumerate(ranks) if number == 0 or count != ranks[number - 1]],
        missing=[sum(UNEVEN) - len(of_epoch) for of_epoch in ids],
        repeated=[of_epoch.total() - len(of_epoch) for of_epoch in ids],
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_row_is_committed_once_in_each_epoch_whoever_comes_goes_or_dies(job: Callable[[str], Committed]) -> None:
    """Two ranks, one, two, three, of which one dies, and at last one: growth, shrinking and death."""
    found = job("reader")
    assert found.ranks == [2, 1, 2, 3, 2, 1]
    assert found == Committed(found.ranks, missing=[0, 0], repeated=[0, 0])


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["sampler", "told-sampler"])
def test_with_the_sampler_of_horovod_the_same_job_leaves_rows_out_or_repeats_some(
    way: str, job: Callable[[str], Committed]
) -> None:
    """The baseline: nobody tells it of ranks that have only gone; and if somebody does, it still makes shares even."""
    found = job(way)
    assert found.ranks == [2, 1, 2, 3, 2, 1]
    assert sum(found.repeated) > 0
    assert (sum(found.missing) > 0) == (way == "sampler")
