"""Tests of `DeliveredBatches`: the position after each delivered batch, by number, across iterations."""

from __future__ import annotations

import pytest

from petastore.adapters.epoch_tracker import DeliveredBatches, delivered_of
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor


def give(delivered: DeliveredBatches, epoch: int, count: int) -> None:
    """Deliver `count` batches of ten rows in a new pass."""
    number = delivered.begin_pass()
    for batch in range(1, count + 1):
        delivered.note(number, Cursor(epoch, 10 * batch))


def test_position_after_a_delivered_batch_is_that_of_the_newest_iteration() -> None:
    delivered = DeliveredBatches()
    for epoch in range(2):
        give(delivered, epoch, 3)
        assert [delivered.cursor_after(number, in_pass=True) for number in (1, 2, 3)] == [
            Cursor(epoch, 10),
            Cursor(epoch, 20),
            Cursor(epoch, 30),
        ]
        for number in (0, 4):
            with pytest.raises(
                InvalidArgumentError,
                match=rf"batches must be from 1 to 3, the batches of this iteration, got {number}\.",
            ):
                delivered.cursor_after(number, in_pass=True)


def test_position_before_the_first_delivered_batch_raises() -> None:
    delivered = DeliveredBatches()
    with pytest.raises(
        InvalidArgumentError,
        match=r"must be a number of delivered batches, but this iteration has delivered none, got 1",
    ):
        delivered.cursor_after(1)
    give(delivered, 0, 2)
    give(delivered, 1, 0)
    with pytest.raises(
        InvalidArgumentError,
        match=r"must be a number of delivered batches, but this iteration has delivered none, got 1",
    ):
        delivered.cursor_after(1, in_pass=True)


def test_only_the_last_65536_positions_of_delivered_batches_are_kept() -> None:
    delivered = DeliveredBatches()
    give(delivered, 0, 70_000)
    assert delivered.count == 70_000
    assert delivered.cursor_after(70_000 - 65_535).position == 10 * (70_000 - 65_535)
    with pytest.raises(
        InvalidArgumentError, match="must be from 4,465 to 70,000, the batches of this iteration, got 4,464"
    ):
        delivered.cursor_after(4_464)


def test_delivered_batches_are_counted_across_iterations() -> None:
    delivered = DeliveredBatches()
    give(delivered, 0, 2)
    left = delivered.begin_pass()
    delivered.note(left, Cursor(9, 10))
    delivered.begin()
    delivered.note(left, Cursor(9, 20))  # belongs to an abandoned iteration
    give(delivered, 1, 3)
    give(delivered, 2, 4)
    assert delivered.count == 7
    assert [delivered.cursor_after(batches) for batches in (1, 3, 4, 7)] == [
        Cursor(1, 10),
        Cursor(1, 30),
        Cursor(2, 10),
        Cursor(2, 40),
    ]
    for batches in (0, 8):
        with pytest.raises(
            InvalidArgumentError, match=f"must be from 1 to 7, the batches of this iteration, got {batches}"
        ):
            delivered.cursor_after(batches)


def test_delivered_batches_of_older_iterations_do_not_change_the_position() -> None:
    delivered = DeliveredBatches()
    older = delivered.begin_pass()
    delivered.note(older, Cursor(0, 10))
    give(delivered, 1, 1)
    delivered.note(older, Cursor(0, 20))
    assert delivered.count == 2
    assert delivered.cursor_after(1, in_pass=True) == Cursor(1, 10)


def test_each_reader_has_its_own_count_of_delivered_batches() -> None:
    class Reader:
        """Placeholder, because the count works for any object."""

    first, second = Reader(), Reader()
    give(delivered_of(first), 0, 1)
    assert (delivered_of(first).count, delivered_of(second).count) == (1, 0)
    delivered_of(first).begin()
    assert delivered_of(first).count == 0
