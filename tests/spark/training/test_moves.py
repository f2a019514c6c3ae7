"""Tests of planning moves of rows between ranks: equal shares with as few moves as possible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import InvalidArgumentError
from petastore.plan.order.parts import Parts
from petastore.spark.training.exchange import moves


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_moves_of_rows_between_ranks_give_equal_shares(there: list[int]) -> None:
    there[0] += len(there)
    wanted = Parts.of(sum(there), ranks=len(there)).rows
    found = moves(there, wanted)
    after = list(there)
    for move in found:
        assert move.rows > 0
        after[move.giver] -= move.rows
        after[move.taker] += move.rows
    assert after == list(wanted)
    assert not {move.giver for move in found} & {move.taker for move in found}
    assert sum(move.rows for move in found) == sum(max(0, a - b) for a, b in zip(there, wanted, strict=True))
    assert len({(move.giver, move.taker) for move in found}) == len(found)


def test_moves_of_rows_raise_if_the_sums_before_and_after_differ() -> None:
    with pytest.raises(InvalidArgumentError, match="got 3 rows on 2 ranks before and 4 rows on 2 ranks after"):
        moves([1, 2], [2, 2])
