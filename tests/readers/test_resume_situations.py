"""Tests of resume: at the end of an epoch, with a filter, inside a batch or loop, repeatedly, around a fork."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import DataLoader
from petastore.errors import ReaderClosedError
from petastore.expressions import col
from tests.forked import forked_with_a_pipe

ROWS, BATCH, EPOCHS = 130, 8, 2


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("situations")
    for file in range(3):
        part = range(file * ROWS // 3, (file + 1) * ROWS // 3)
        pq.write_table(pa.table({"id": part}), folder / f"{file}.parquet", row_group_size=9)
    return str(folder)


def rows(reader: Any) -> Iterator[list[int]]:
    return ([int(row.id)] for row in reader)


def batches(reader: Any) -> Iterator[list[int]]:
    return (batch["id"].tolist() for batch in reader.iter_batches(BATCH))


def loader(reader: Any) -> Iterator[list[int]]:
    return (batch["id"].tolist() for batch in DataLoader(reader, batch_size=BATCH))


WAYS: dict[str, Callable[[Any], Iterator[list[int]]]] = {"rows": rows, "batches": batches, "loader": loader}
ASKED: dict[str, dict[str, Any]] = {
    "shuffled": {"shuffle_rows": True},
    "in file order": {"shuffle_row_groups": False},
    "dealt": {"shuffle_rows": True, "reshuffle_each_epoch": False},
    "filtered": {"shuffle_rows": True, "filters": col("id").isin([*range(0, ROWS, 3), 1, 2]), "filter_cache": False},
    "padded": {"shuffle_rows": True, "last_batch": "pad"},
    "rank 1 of 2": {"shuffle_rows": True, "cur_shard": 1, "shard_count": 2},
}


def open_reader(url: str, asked: str, **options: Any) -> Any:
    return petastore.make_reader(url, seed=5, num_epochs=EPOCHS, **ASKED[asked], **options)


def items_and_states(url: str, asked: str, way: str) -> list[tuple[list[int], dict[str, Any], int]]:
    """Return each item of an uninterrupted run, with the state before it and its step."""
    found: list[tuple[list[int], dict[str, Any], int]] = []
    with open_reader(url, asked) as reader:
        items = WAYS[way](reader)
        while True:
            state = json.loads(json.dumps(reader.state_dict()))
            step = reader.position(1 if way == "rows" else BATCH).step
            item = next(items, None)
            if item is None:
                return found
            found.append((item, state, step))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", ASKED)
def test_resume_at_the_end_of_an_epoch_and_around_it_is_exact(url: str, asked: str, way: str) -> None:
    run = items_and_states(url, asked, way)
    assert len(run) % EPOCHS == 0
    steps = len(run) // EPOCHS
    assert [step for _, _, step in run] == [*range(steps)] * EPOCHS
    with open_reader(url, asked) as reader:
        for at in [steps, steps - 1, 2 * steps - 1, steps + 1, 0, 3]:  # one reader loads one state after another
            reader.load_state_dict(run[at][1])
            size = 1 if way == "rows" else BATCH
            assert (reader.position(size).epoch, reader.position(size).step) == divmod(at, steps)
            assert list(WAYS[way](reader)) == [item for item, _, _ in run[at:]]


@pytest.mark.parametrize(
    "asked", sorted(ASKED.keys() - {"padded"})
)  # padded batches of one and of eight rows repeat different rows
def test_resume_inside_a_batch_gives_the_remaining_rows(url: str, asked: str) -> None:
    run = items_and_states(url, asked, "rows")
    whole = [number for item, _, _ in run for number in item]
    epoch = len(whole) // EPOCHS
    for at in (BATCH // 2, epoch - 1, len(run) - 1):
        with open_reader(url, asked) as reader:
            reader.load_state_dict(run[at][1])
            rest = [number for item in batches(reader) for number in item]
        cut = max(epoch - at, 0)
        assert sorted(rest[:cut]) == sorted(whole[at : at + cut])
        assert sorted(rest[cut:]) == sorted(whole[at + cut :])


@pytest.mark.parametrize("way", WAYS)
def test_state_loaded_inside_a_loop_is_exact_or_ends_the_loop(url: str, way: str) -> None:
    run = items_and_states(url, "shuffled", way)
    with open_reader(url, "shuffled") as reader:
        for at in (7, 7, 3):
            reader.load_state_dict(run[0][1])
            items = WAYS[way](reader)
            next(items), next(items)
            reader.load_state_dict(run[at][1])
            if way == "rows":  # iter(reader) is the reader, so a loop over it continues with the state
                assert [next(items), *items] == [item for item, _, _ in run[at:]]
                continue
            with pytest.raises(ReaderClosedError, match="Start a new loop"):
                next(items)
            assert list(WAYS[way](reader)) == [item for item, _, _ in run[at:]]


@pytest.mark.parametrize("is_reading", [False, True])
def test_state_loaded_before_or_after_a_fork_is_exact(url: str, is_reading: bool) -> None:
    run = items_and_states(url, "filtered", "batches")
    rest = [item for item, _, _ in run[5:]]
    with open_reader(url, "filtered") as reader:
        if is_reading:
            next(batches(reader))
        reader.load_state_dict(run[5][1])

        def read(pipe: int) -> None:
            inherited = list(batches(reader))
            reader.load_state_dict(run[5][1])
            os.write(pipe, json.dumps([inherited, list(batches(reader))]).encode())

        child, pipe = forked_with_a_pipe(read)
        with os.fdopen(pipe, "rb") as file:
            found = json.load(file)
        assert os.waitpid(child, 0)[1] == 0
        assert found == [rest, rest]
        assert list(batches(reader)) == rest


def test_first_batch_after_a_resume_has_the_cursor_of_its_step(url: str) -> None:
    run = items_and_states(url, "shuffled", "batches")
    with open_reader(url, "shuffled") as reader:
        cursors = [batch.cursor for batch in reader.iter_batches(BATCH)]
        for at in (1, len(run) // 2 - 1, len(run) // 2):
            reader.load_state_dict(run[at][1])
            assert [batch.cursor for batch in itertools.islice(reader.iter_batches(BATCH), 2)] == cursors[at : at + 2]


def test_state_saved_with_another_filter_raises(url: str, tmp_path: Path) -> None:
    run = items_and_states(url, "filtered", "batches")
    for filters in (None, col("id") < 50):
        with (
            petastore.make_reader(url, seed=5, shuffle_rows=True, num_epochs=EPOCHS, filters=filters) as reader,
            pytest.raises(petastore.errors.InvalidArgumentError, match="another dataset or filter"),
        ):
            reader.load_state_dict(run[2][1])
