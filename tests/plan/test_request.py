"""What was asked is refused where it is made."""

from __future__ import annotations

import pytest

from petastore.errors import RequestError
from petastore.plan import Order, Shard, Tail


@pytest.mark.parametrize(("index", "count"), [(2, 2), (-1, 2), (0, 0), (1.0, 2), (True, 2), ("0", 2)])
def test_shards_are_numbered_from_zero_below_their_count(index: object, count: object) -> None:
    with pytest.raises(RequestError, match=r"cur_shard|shard_count"):
        Shard(index, count)  # type: ignore[arg-type]


@pytest.mark.parametrize("pair", [(0, None), (None, 2)])
def test_a_shard_and_the_number_of_shards_go_together(pair: tuple[int | None, int | None]) -> None:
    with pytest.raises(RequestError, match="give both"):
        Shard.parse(*pair)


def test_no_shard_is_the_whole() -> None:
    assert Shard.parse(None, None) == Shard(0, 1)


def test_an_unknown_tail_is_refused_with_those_that_exist() -> None:
    with pytest.raises(RequestError, match="'even', 'drop', 'pad', 'wrap'"):
        Tail.parse("cut")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1.5, "7", True])
def test_seeds_are_whole_numbers(seed: object) -> None:
    with pytest.raises(RequestError, match="seed"):
        Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)  # type: ignore[arg-type]
