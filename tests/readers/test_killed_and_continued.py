"""Tests of a training run that is killed and resumes with other ranks: every row exactly once.

`tests/readers/rank_to_kill.py` is a rank, and SIGKILL ends it. Claims about *all* rows depend on the last batches. With
`even`, each row comes once for any number of ranks: in the last step of an epoch the ranks share the remaining rows.
Remaining rows that are fewer than ranks join the previous step. `drop` omits rows, and `pad` and `wrap` repeat some, so
the claim does not hold for them. The row counts are primes, so that rows remain for any number of ranks and batch size.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from tests.warm_interpreters import ForkedProgram, WarmInterpreter

ROWS = 1009
KEPT = 443
RANK = "import json, sys\nfrom tests.readers.rank_to_kill import main\nmain(json.loads(sys.argv[1]))"

OF_RANK_0 = ["given", "gathered", "written aside", "committed"]
OF_OTHERS = ["given", "sent"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("killed")
    kept = np.random.RandomState(0).permutation(ROWS) < KEPT
    table = pa.table({"id": np.arange(ROWS), "kept": np.where(kept, "yes", "no")})
    for number, part in enumerate(np.array_split(np.arange(ROWS), 6)):
        pq.write_table(table.slice(part[0], len(part)), directory / f"part-{number}.parquet", row_group_size=19)
    return str(directory)


@dataclasses.dataclass
class Training:
    """A training run that is killed and resumed: its constant options, and the folder of its checkpoints."""

    interpreter: WarmInterpreter
    url: str
    directory: Path
    reader: dict[str, Any]
    filtered: bool = False

    @property
    def committed(self) -> int:
        """The number of committed steps according to the checkpoint."""
        checkpoint = self.directory / "checkpoint.json"
        return int(json.loads(checkpoint.read_text())["steps"]) if checkpoint.exists() else 0

    def steps(self) -> list[list[list[int]]]:
        """Return the ids of each rank in each committed step."""
        return [json.loads((self.directory / f"step-{step}.json").read_text()) for step in range(self.committed)]

    def job(self, rank: int, ranks: int, batch_size: int) -> dict[str, Any]:
        facts = {"url": self.url, "reader": self.reader, "filtered": self.filtered, "directory": str(self.directory)}
        return {**facts, "rank": rank, "ranks": ranks, "batch_size": batch_size, "hold": None}


def start(training: Training, ranks: int, batch_size: int, held: tuple[int, int, str] | None) -> list[ForkedProgram]:
    """Start all ranks; `held` is a rank, a step and the moment at which it waits to be killed."""
    pairs = [socket.socketpair() for _ in range(ranks - 1)]
    processes = []
    for rank in range(ranks):
        ends = [first for first, _ in pairs] if rank == 0 else [pairs[rank - 1][1]]
        job = training.job(rank, ranks, batch_size) | {"sockets": [end.fileno() for end in ends]}
        if held is not None and held[0] == rank:
            job["hold"] = held[1:]
        processes.append(training.interpreter.start(RANK, json.dumps(job), pass_fds=job["sockets"]))
    for end in itertools.chain(*pairs):
        end.close()
    return processes


def end(processes: list[ForkedProgram]) -> None:
    """Kill the remaining processes and wait for their end."""
    for process in processes:
        process.kill()
    for process in processes:
        process.communicate()


def run_until_killed(training: Training, ranks: int, batch_size: int, held: tuple[int, int, str]) -> None:
    """Run all ranks, kill one where it waits, then kill all others at any point."""
    processes = start(training, ranks, batch_size, held)
    with ExitStack() as stack:
        stack.callback(end, processes)
        victim = processes[held[0]]
        said = victim.stdout.readline()
        if said != f"held at step {held[1]}, {held[2]}\n":
            raise AssertionError(f"{held} came to {said!r}: {victim.communicate()}")
        victim.kill()
        assert victim.wait() == -9


def run_to_the_end(training: Training, ranks: int, batch_size: int) -> None:
    processes = start(training, ranks, batch_size, None)
    with ExitStack() as stack:
        stack.callback(end, processes)
        for process in processes:
            said = process.communicate()
            assert (process.returncode, *said) == (0, "", "")


def kills(seed: int, ranks: int, *, most_steps: int) -> Iterator[tuple[int, int, str]]:
    """Yield a rank, the number of steps until it is killed, and the moment within the last step."""
    random = np.random.RandomState(seed)
    while True:
        rank = int(random.randint(ranks))
        moments = OF_RANK_0 if rank == 0 else OF_OTHERS
        yield rank, int(random.randint(most_steps)), moments[random.randint(len(moments))]


def run_and_kill(training: Training, parts: list[tuple[int, int, int]], *, seed: int) -> None:
    """Run parts of (ranks, batch size, kills), and run the last part to the end."""
    for place, (ranks, batch_size, times) in enumerate(parts):
        of_part = itertools.islice(kills(seed + place, ranks, most_steps=4), times)
        for rank, steps, moment in of_part:
            before = training.committed
            run_until_killed(training, ranks, batch_size, (rank, before + steps, moment))
            done = training.committed - before
            # The last step counts if its checkpoint was in place at the kill: rank 0 knows, other ranks do not.
            assert done in {"committed": (steps + 1,), "sent": (steps, steps + 1)}.get(moment, (steps,))
    ranks, batch_size, _ = parts[-1]
    run_to_the_end(training, ranks, batch_size)


def ids(steps: list[list[list[int]]]) -> list[int]:
    return [row for step in steps for rank in step for row in rank]


SHUFFLED: dict[str, Any] = {"shuffle_rows": True, "seed": 7, "interleave": 12, "workers_count": 2}


def test_killed_training_resumes_on_fewer_and_more_ranks_with_same_batches(
    url: str, tmp_path: Path, warm_python: WarmInterpreter
) -> None:
    """Global batches have 60 rows with 4, 3 and 5 ranks, so each step has the rows of a single rank's step."""
    training = Training(warm_python, url, tmp_path, {**SHUFFLED, "last_batch": "even"})
    run_and_kill(training, [(4, 15, 2), (3, 20, 1), (5, 12, 0)], seed=0)
    steps = training.steps()
    assert sorted(ids(steps)) == list(range(ROWS))
    with petastore.make_reader(url, **SHUFFLED) as reader:
        uninterrupted = [sorted(batch["id"].tolist()) for batch in reader.iter_batches(60)]
    assert [sorted(ids([step])) for step in steps] == uninterrupted


def test_resume_with_other_ranks_and_batch_size_reads_filtered_rows_once(
    url: str, tmp_path: Path, warm_python: WarmInterpreter
) -> None:
    """8, 9 and 7 rows per rank: 32, 27 and 35 rows a step, over two epochs."""
    training = Training(warm_python, url, tmp_path, {**SHUFFLED, "last_batch": "even", "num_epochs": 2}, filtered=True)
    run_and_kill(training, [(4, 8, 1), (3, 9, 1), (5, 7, 0)], seed=6)
    kept = pq.read_table(url, filters=[("kept", "==", "yes")])["id"].to_pylist()
    assert len(kept) == KEPT
    assert sorted(ids(training.steps())) == sorted(2 * kept)
    assert all(len({len(rank) for rank in step}) <= 2 for step in training.steps())
