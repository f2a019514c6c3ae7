"""Checks of the rows of each rank: seeds, equal shares and invalid ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .data import ids_of, numbers, petastorm


def _shard(url: str, shard: int, count: int, **asked: Any) -> list[int]:
    reader = petastorm().make_reader(url, cur_shard=shard, shard_count=count, reader_pool_type="dummy", **asked)
    return ids_of(reader)


def a_seed_decides_which_rank_gets_what(folder: Path) -> None:
    """In Petastorm, neither `seed` nor `shard_seed` changes the rows of a rank."""
    url = numbers(folder, 100)
    found = {tuple(sorted(_shard(url, 0, 2, seed=seed))) for seed in range(1, 6)}
    assert len(found) > 1, "five seeds gave the first rank the same rows"


def ranks_get_equal_shares(folder: Path) -> None:
    """Petastorm divides whole row groups, so one rank gets twice as many rows here, and steps differ."""
    url = numbers(folder, 30)
    shares = [_shard(url, shard, 2) for shard in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(30))
    assert len(shares[0]) == len(shares[1]), f"{len(shares[0])} and {len(shares[1])} rows"


def more_ranks_than_row_groups_all_get_rows(folder: Path) -> None:
    """Petastorm raises an error."""
    url = numbers(folder, 30)
    assert [len(_shard(url, shard, 5)) for shard in range(5)] == [6] * 5


def a_rank_that_cannot_be_is_refused(folder: Path) -> None:
    """Petastorm returns no rows for an invalid rank, without an error."""
    url = numbers(folder, 30)
    try:
        found = _shard(url, 2, 2)
    except ValueError:
        return
    raise AssertionError(f"rank 2 of 2 was accepted, and got {len(found)} rows")
