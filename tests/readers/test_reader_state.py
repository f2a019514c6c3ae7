"""Tests of `state_dict`: resume with other workers, ranks and batch sizes, and after SIGKILL."""

from __future__ import annotations

import itertools
import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import InvalidArgumentError, ReaderClosedError
from tests.tier import sized
from tests.warm_interpreters import WarmInterpreter

ROWS = 500


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("state")
    for number, part in enumerate(np.array_split(np.arange(ROWS), 5)):
        pq.write_table(pa.table({"id": part}), directory / f"part-{number}.parquet", row_group_size=17)
    return str(directory)


def test_state_loaded_during_a_loop_raises(url: str) -> None:
    with petastore.make_reader(url) as reader:
        batches = reader.iter_batches(100)
        next(batches)
        reader.load_state_dict(reader.state_dict())
        for _ in range(2):
            with pytest.raises(ReaderClosedError, match=r"because load_state_dict, .* was called\. Start a new loop"):
                next(batches)
        assert sum(len(batch["id"]) for batch in reader.iter_batches(100)) == ROWS - 100


def test_new_reader_with_other_workers_resumes_at_the_next_batch(url: str) -> None:
    with petastore.make_reader(url, shuffle_rows=True, num_epochs=2) as reader:
        batches = reader.iter_batches(32)
        taken = [next(batches)["id"].tolist() for _ in range(9)]
        state = json.dumps(reader.state_dict())
        rest = [batch["id"].tolist() for batch in batches]
    with petastore.make_reader(url, reader_pool_type="dummy", shuffle_rows=True, num_epochs=2) as reader:
        reader.load_state_dict(json.loads(state))
        assert [batch["id"].tolist() for batch in reader.iter_batches(32)] == rest
    assert sorted(itertools.chain(*taken, *rest)) == sorted([*range(ROWS)] * 2)


def test_new_reader_resumes_at_the_next_row(url: str) -> None:
    with petastore.make_reader(url, seed=4) as reader:
        taken = [int(row.id) for row in itertools.islice(reader, 123)]
        state = reader.state_dict()
        whole = taken + [int(row.id) for row in reader]
        reader.load_state_dict(state)
        assert taken + [int(row.id) for row in reader] == whole


def test_state_excludes_prefetched_rows(url: str) -> None:
    with petastore.make_reader(url, workers_count=4) as reader:
        batches = reader.iter_batches(10)
        for step in range(5):
            assert reader.state_dict()["position"] == 10 * step
            next(batches)


def test_another_number_of_ranks_divides_the_remaining_rows(url: str) -> None:
    seen: list[int] = []
    state = None
    for ranks, batch_size, steps in [(4, 8, 5), (3, 10, 4), (5, 7, 10**6)]:
        states = []
        for rank in range(ranks):
            with petastore.make_reader(url, shuffle_rows=True, seed=0, cur_shard=rank, shard_count=ranks) as reader:
                if state is not None:
                    reader.load_state_dict(state)
                for batch in itertools.islice(reader.iter_batches(batch_size), steps):
                    seen += batch["id"].tolist()
                states.append(reader.state_dict())
        assert all(one == states[0] for one in states)
        state = states[0]
    assert sorted(seen) == list(range(ROWS))


def test_reshard_mid_epoch_reads_the_remaining_rows_once_on_other_ranks(url: str) -> None:
    readers = [petastore.make_reader(url, shuffle_rows=True, cur_shard=rank, shard_count=2) for rank in range(2)]
    seen: list[int] = []
    for reader in readers:
        for batch in itertools.islice(reader.iter_batches(16), 6):
            seen += batch["id"].tolist()
    readers.append(petastore.make_reader(url, shuffle_rows=True, cur_shard=0, shard_count=1))
    readers[2].load_state_dict(readers[0].state_dict())
    for rank, reader in enumerate(readers):
        reader.reshard(rank, 3)
        for batch in reader.iter_batches(16):
            seen += batch["id"].tolist()
        reader.stop()
        reader.join()
    assert sorted(seen) == list(range(ROWS))


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_static_order_state_finishes_the_epoch_on_another_number_of_ranks(url: str, shuffle_rows: bool) -> None:
    def ranks(count: int, state: Any = None, steps: int | None = None) -> tuple[list[list[int]], Any]:
        given = []
        for rank in range(count):
            with petastore.make_reader(
                url,
                shuffle_rows=shuffle_rows,
                interleave=12 if shuffle_rows else None,
                reshuffle_each_epoch=False,
                num_epochs=3,
                cur_shard=rank,
                shard_count=count,
            ) as reader:
                if state is not None:
                    reader.load_state_dict(json.loads(json.dumps(state)))
                batches = itertools.islice(reader.iter_batches(5), steps)
                given.append([row for batch in batches for row in batch["id"].tolist()])
                after = reader.state_dict()
        return given, after

    before, state = ranks(4, steps=7)
    after, _ = ranks(3, state)
    everything = sorted(itertools.chain(*before, *after))
    assert everything == sorted([*range(ROWS)] * 3)
    fresh, _ = ranks(3)
    for rank in range(3):  # the last epoch is sharded over three ranks, independent of the four before
        share = len(fresh[rank]) // 3
        assert sorted(after[rank][-share:]) == sorted(fresh[rank][-share:]) == sorted(fresh[rank][:share])
    four, _ = ranks(4)
    kept = sum(len(set(fresh[rank]) & set(four[rank])) for rank in range(3))
    assert kept >= ROWS - 1.3 * ROWS / 4


def test_state_of_another_order_or_dataset_raises(url: str, tmp_path: Path) -> None:
    with petastore.make_reader(url, seed=1) as reader:
        state = reader.state_dict()
    with petastore.make_reader(url, seed=2) as reader, pytest.raises(InvalidArgumentError, match="seed"):
        reader.load_state_dict(state)
    pq.write_table(pa.table({"id": [1]}), tmp_path / "part.parquet")
    with (
        petastore.make_reader(str(tmp_path), seed=1) as reader,
        pytest.raises(InvalidArgumentError, match="another dataset or filter"),
    ):
        reader.load_state_dict(state)


def test_load_state_dict_raises_for_a_stopped_reader(url: str) -> None:
    reader = petastore.make_reader(url)
    state = reader.state_dict()
    reader.stop()
    with pytest.raises(ReaderClosedError):
        reader.load_state_dict(state)


TRAINING = """
import json, os, sys
from pathlib import Path
import petastore

url, checkpoint, log = sys.argv[1:]
with petastore.make_reader(url, shuffle_rows=True, num_epochs=1) as reader:
    if os.path.exists(checkpoint):
        reader.load_state_dict(json.loads(Path(checkpoint).read_text()))
    for batch in reader.iter_batches(16):
        aside = Path(checkpoint + ".new")
        aside.write_text(json.dumps({**reader.state_dict()}))
        committed = json.dumps(batch["id"].tolist())
        print(committed, flush=True)
        if sys.stdin.readline() != "commit\\n":
            raise SystemExit("not committed")
        aside.replace(checkpoint)
        print("committed", flush=True)
"""


def test_killed_training_resumes_with_each_row_once(url: str, tmp_path: Path, warm_python: WarmInterpreter) -> None:
    """SIGKILL at some batches, before or after their commit; committed batches have each row once."""
    most = sized(full=20, quick=8)
    seen: list[int] = []
    random = np.random.RandomState(0)
    kills = 0
    while len(seen) < ROWS:
        steps = random.randint(1, 3) if kills < most else 10**6
        with warm_python.start(TRAINING, url, tmp_path / "checkpoint", tmp_path / "log") as training:
            for _ in range(steps):
                line = training.stdout.readline()
                if not line:
                    break
                if kills < most and random.randint(3) == 0:
                    break  # killed between the batch and its commit, so the batch is repeated
                training.stdin.write("commit\n")
                training.stdin.flush()
                assert training.stdout.readline() == "committed\n"
                seen += json.loads(line)
            training.send_signal(signal.SIGKILL)
            kills += 1
            training.stdin.close()
        assert kills < 60
    assert kills > most
    assert sorted(seen) == list(range(ROWS))
