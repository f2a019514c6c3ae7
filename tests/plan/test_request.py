"""What was asked is refused where it is made."""

from __future__ import annotations

from typing import get_args

import pytest

from petastore.errors import InvalidArgumentError
from petastore.plan import Order, Shard, Tail
from petastore.plan.request import PlanAsk, Reshuffle, TailWord


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (1.0, 2), (True, 2), ("0", 2)])
def test_shards_are_numbered_from_zero_below_their_count(index: object, count: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"cur_shard|shard_count"):
        Shard(index, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", [(0, None), (None, 2)])
def test_a_shard_and_the_number_of_shards_go_together(pair: tuple[int | None, int | None]) -> None:
    with pytest.raises(InvalidArgumentError, match="give both"):
        Shard.parse(*pair)


def test_no_shard_is_the_whole() -> None:
    assert Shard.parse(None, None) == Shard(0, 1)


def test_an_unknown_tail_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidArgumentError, match="'even', 'drop', 'pad', 'wrap'"):
        Tail.parse("cut")


@pytest.mark.parametrize("seed", [1.5, "7", True])
def test_seeds_are_whole_numbers(seed: object) -> None:
    with pytest.raises(InvalidArgumentError, match="seed"):
        Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)  # type: ignore[arg-type]


def test_words_of_types_are_those_that_are_understood() -> None:
    assert get_args(TailWord) == tuple(last_batch.value for last_batch in Tail)
    for word in get_args(Reshuffle):
        order = Order(0, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1, reshuffle=word)
        assert order.reshuffle == word


def test_columns_that_are_asked_for_by_an_iterator_can_be_looked_at_again() -> None:
    ask = PlanAsk(iter(["id", "name"]))
    assert list(ask.columns or ()) == list(ask.columns or ()) == ["id", "name"]
