"""Tests of the validation of read requests: shards, seeds, last_batch and columns."""

from __future__ import annotations

from typing import get_args

import pytest

from petastore.errors import InvalidArgumentError
from petastore.plan import LastBatch, Order, Shard
from petastore.plan.request import LastBatchWord, PlanOptions, Reshuffle


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (1.0, 2), (True, 2), ("0", 2)])
def test_shards_are_numbered_from_zero_below_their_count(index: object, count: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cur_shard|shard_count"):
        Shard(index, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", [(0, None), (None, 2)])
def test_cur_shard_and_shard_count_must_be_given_together(pair: tuple[int | None, int | None]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cur_shard and shard_count must be given together, .*Give both"):
        Shard.parse(*pair)


def test_no_shard_means_all_rows() -> None:
    assert Shard.parse(None, None) == Shard(0, 1)


def test_unknown_last_batch_raises_and_lists_the_options() -> None:
    with pytest.raises(InvalidArgumentError, match="'even', 'drop', 'pad', 'wrap'"):
        LastBatch.parse("cut")


@pytest.mark.parametrize("seed", [1.5, "7", True])
def test_seed_must_be_an_int(seed: object) -> None:
    with pytest.raises(InvalidArgumentError, match="seed"):
        Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)  # type: ignore[arg-type]


def test_type_hints_of_last_batch_and_reshuffle_list_the_accepted_values() -> None:
    assert get_args(LastBatchWord) == tuple(last_batch.value for last_batch in LastBatch)
    for word in get_args(Reshuffle):
        order = Order(0, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1, reshuffle=word)
        assert order.reshuffle == word


def test_plan_columns_accept_an_iterator() -> None:
    ask = PlanOptions(iter(["id", "name"]))
    assert list(ask.columns or ()) == list(ask.columns or ()) == ["id", "name"]
