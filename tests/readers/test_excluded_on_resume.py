"""Tests of resuming with `exclude_rows`: the rest of the current epoch, and whole epochs afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_reader
from petastore.adapters.torch import DataLoader

ROWS = 60
EXCLUDED = [("x.parquet", 0, 3), ("x.parquet", 2, 1), ("x.parquet", 5, 9)]
LEFT = sorted(set(range(ROWS)) - {10 * group + row for _, group, row in EXCLUDED})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write rows 0 to 59 in row groups of ten."""
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "x.parquet", row_group_size=10)
    return str(tmp_path)


def open_reader(url: str, **asked: Any) -> Any:
    return make_reader(url, seed=7, shuffle_rows=True, **asked)


def state_after(url: str, rows: int, **asked: Any) -> dict[str, Any]:
    with open_reader(url, **asked) as reader:
        for _ in range(rows):
            next(reader)
        return dict(reader.state_dict())


def ids(reader: Any) -> list[int]:
    return [int(row.id) for row in reader]


def epoch_of(url: str, epoch: int, **asked: Any) -> list[int]:
    """Return the ids of one epoch of a reader that excludes the rows from the start."""
    with open_reader(url, exclude_rows=EXCLUDED, num_epochs=None, **asked) as reader:
        for _ in range(epoch * len(LEFT)):
            next(reader)
        return [int(next(reader).id) for _ in LEFT]


@pytest.mark.parametrize("read_before_reset", [0, 5, None])
def test_reset_after_excluding_rows_mid_epoch_starts_the_next_whole_epoch(
    url: str, read_before_reset: int | None
) -> None:
    with open_reader(url, exclude_rows=EXCLUDED) as reader:
        reader.load_state_dict(state_after(url, 25))
        if read_before_reset is None:
            assert set(ids(reader)) <= set(LEFT)
        else:
            for _ in range(read_before_reset):
                next(reader)
        reader.reset()
        assert ids(reader) == epoch_of(url, 1)
        reader.reset()
        assert ids(reader) == epoch_of(url, 2)


def test_state_after_reset_counts_the_whole_epoch(url: str) -> None:
    with open_reader(url, exclude_rows=EXCLUDED) as reader:
        reader.load_state_dict(state_after(url, 25))
        reader.reset()
        first = [int(next(reader).id) for _ in range(20)]
        state = reader.state_dict()
    with open_reader(url, exclude_rows=EXCLUDED) as reader:
        reader.load_state_dict(state)
        assert first + ids(reader) == epoch_of(url, 1)


def test_set_epoch_after_mid_epoch_exclusion_reads_rest_then_whole_epochs(url: str) -> None:
    before = state_after(url, 24)
    with open_reader(url, exclude_rows=EXCLUDED) as reader, DataLoader(reader, batch_size=6) as loader:
        loader.load_state_dict(before)

        def epoch(number: int) -> list[int]:
            loader.set_epoch(number)
            steps = len(loader)
            batches = [batch["id"].tolist() for batch in loader]
            assert len(batches) == steps
            return [number for batch in batches for number in batch]

        assert len(epoch(0)) < len(LEFT) - 20
        assert sorted(epoch(0)) == LEFT
        assert sorted(epoch(1)) == LEFT
        again = epoch(0)
        assert epoch(0) == again
        loader.load_state_dict(before)
        assert len(epoch(0)) < len(LEFT) - 20


def test_set_epoch_that_does_not_match_the_state_warns_and_reads_the_rest(url: str) -> None:
    with open_reader(url, exclude_rows=EXCLUDED) as reader, DataLoader(reader, batch_size=6) as loader:
        loader.load_state_dict(state_after(url, 24))
        loader.set_epoch(5)
        with pytest.warns(UserWarning, match=r"set_epoch\(5\) was called after a state of epoch 0 was loaded"):
            rest = [number for batch in loader for number in batch["id"].tolist()]
        assert len(rest) < len(LEFT) - 20


def test_second_loop_after_excluding_rows_mid_epoch_reads_a_whole_epoch(url: str) -> None:
    with open_reader(url, exclude_rows=EXCLUDED) as reader, DataLoader(reader, batch_size=6) as loader:
        loader.load_state_dict(state_after(url, 24))
        next(iter(loader))
        assert sorted(number for batch in loader for number in batch["id"].tolist()) == LEFT


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_rows_of_the_last_step_can_be_excluded_on_every_rank(url: str, ranks: int) -> None:
    """The rows of one step, on all ranks, are excluded from the rest of the epoch and from the next one."""
    bad: list[tuple[str, int, int]] = []
    for rank in range(ranks):
        with open_reader(url, cur_shard=rank, shard_count=ranks) as reader:
            batches = reader.iter_batches(12 // ranks)
            next(batches), next(batches)
            position = reader.position()
            assert position.step == 2
            bad += position.rows
            state = reader.state_dict()
    assert len(bad) == 12
    out = {10 * group + row for _, group, row in bad}
    seen: list[int] = []
    for rank in range(ranks):
        with open_reader(url, cur_shard=rank, shard_count=ranks, exclude_rows=bad, num_epochs=2) as reader:
            reader.load_state_dict(state)
            seen += ids(reader)
    assert not out.intersection(seen)
    assert len(seen) == (ROWS - 24) + (ROWS - 12)
    assert set(seen) == set(range(ROWS)) - out
