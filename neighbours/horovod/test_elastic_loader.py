"""Tests of `ElasticDataLoader` loops: interruption, epochs, commit and restore, with one real Horovod rank."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import horovod.torch as hvd
import pytest

from neighbours.conftest import Run
from petastore import make_reader
from petastore.adapters.horovod import ElasticDataLoader
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError

ROWS = [7, 3]
ALL = list(range(10))


@pytest.fixture(scope="module", autouse=True)
def _rank() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture
def loader(numbered: Callable[..., str]) -> Iterator[ElasticDataLoader]:
    with ElasticDataLoader(
        make_reader(numbered(ROWS), cur_shard=0, shard_count=1, shuffle_rows=True), batch_size=4
    ) as made:
        yield made


def ids(batches: Iterator[dict[str, Any]] | ElasticDataLoader) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


def test_elastic_loader_continues_after_an_interrupted_loop(loader: ElasticDataLoader) -> None:
    first = next(iter(loader))["id"].tolist()
    assert sorted(first + ids(loader)) == ALL


def test_elastic_loader_starts_the_next_epoch_after_a_full_loop(loader: ElasticDataLoader) -> None:
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == ALL
    assert first != second


def test_elastic_loader_finishes_an_epoch_left_at_its_last_batch(loader: ElasticDataLoader) -> None:
    """A commit in the body of the last step is interrupted: the epoch has no remaining rows, but is not counted yet."""
    batches = iter(loader)
    given = [number for _ in range(len(loader)) for number in next(batches)["id"].tolist()]
    assert sorted(given) == ALL
    assert ids(loader) == []
    assert sorted(ids(loader)) == ALL


def test_elastic_restore_returns_to_the_last_commit(loader: ElasticDataLoader) -> None:
    state = hvd.elastic.TorchState(reader=loader, epoch=0)
    batches = iter(state.reader)
    committed = next(batches)["id"].tolist()
    state.commit()
    forgotten = next(batches)["id"].tolist()
    state.restore()
    state.sync()
    again = ids(state.reader)
    assert again[: len(forgotten)] == forgotten
    assert sorted(committed + again) == ALL


def test_elastic_restore_after_commit_between_epochs_reads_the_next_epoch(loader: ElasticDataLoader) -> None:
    state = hvd.elastic.TorchState(reader=loader, epoch=0)
    first = ids(state.reader)
    state.commit()
    second = ids(state.reader)
    state.restore()
    assert ids(state.reader) == second
    assert sorted(first) == sorted(second) == ALL


def test_elastic_restore_returns_to_the_position_at_loader_assignment(loader: ElasticDataLoader) -> None:
    state = hvd.elastic.TorchState(reader=loader)
    ids(loader)
    state.reader = loader
    later = loader.state_dict()
    ids(loader)
    state.restore()
    assert state.reader.state_dict() == later


def test_elastic_state_with_a_plain_reader_raises_with_advice(numbered: Callable[..., str]) -> None:
    with make_reader(numbered(ROWS), cur_shard=0, shard_count=1) as reader:
        for plain in (reader, DataLoader(reader, batch_size=4)):
            with pytest.raises(InvalidArgumentError, match=r"petastore\.adapters\.horovod\.ElasticDataLoader"):
                hvd.elastic.TorchState(reader=plain).sync()


LATE = """
import sys, warnings
import horovod.torch as hvd
from petastore import make_reader
from petastore.adapters.horovod import ElasticDataLoader

hvd.init()
with make_reader(sys.argv[1], cur_shard=0, shard_count=1) as alone:
    next(alone.iter_batches(9))  # of ten rows
    state = alone.state_dict()
reader = make_reader(sys.argv[1], cur_shard=hvd.rank(), shard_count=hvd.size())
with ElasticDataLoader(reader, batch_size=4) as loader, warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    rows = []
    for _ in range(2):
        loader.load_state_dict(state)
        rows.append([len(batch["id"]) for batch in loader])
    said = [str(warning.message) for warning in warned if warning.filename == __file__]
print(f"rank {hvd.rank()}:", rows, len(warned), *said, flush=True)
hvd.shutdown()
"""


def test_elastic_loader_warns_of_the_first_empty_batch(run: Run, numbered: Callable[..., str], tmp_path: Path) -> None:
    program = tmp_path / "late.py"
    program.write_text(LATE)
    horovodrun = ["horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2"]
    said = run([*horovodrun, "python", program, numbered(ROWS)])
    first, second = sorted(line.partition("rank ")[2] for line in said.splitlines() if "rank " in line)
    with_row, without = (first, second) if "[[1], [1]]" in first else (second, first)
    assert "[[1], [1]] 0" in with_row
    assert re.search(r": \[\[0\], \[0\]\] 1 a batch of rank \d has no rows.*errors\.sum\(\) / 4", without)
