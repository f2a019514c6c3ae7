"""Where batches end that were handed over, by their numbers in a pass and over several passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from petastore.adapters.received import Received, forgotten, received_of
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns


def batches_of(epoch: int, count: int) -> Iterator[Batch]:
    """Batches of ten rows."""
    return (Batch(Columns({}), 0, 0, Cursor(epoch, 10 * number)) for number in range(1, count + 1))


def give(received: Received, epoch: int, count: int) -> None:
    assert len(list(received.noted(batches_of(epoch, count)))) == count


def test_a_place_is_known_for_each_batch_that_was_handed_over_in_the_newest_pass() -> None:
    received = Received()
    for epoch in range(2):
        give(received, epoch, 3)
        assert [received.cursor_in_pass(number) for number in (1, 2, 3)] == [
            Cursor(epoch, 10),
            Cursor(epoch, 20),
            Cursor(epoch, 30),
        ]
        for number in (0, 4):
            with pytest.raises(InvalidArgumentError, match=rf"after {number} batches was asked for.*are known: 1 to 3"):
                received.cursor_in_pass(number)


def test_before_any_batch_no_place_is_known() -> None:
    received = Received()
    with pytest.raises(InvalidArgumentError, match="are known: none"):
        received.cursor_after(1)
    give(received, 0, 2)
    give(received, 1, 0)
    with pytest.raises(InvalidArgumentError, match="are known: none"):
        received.cursor_in_pass(1)


def test_only_the_last_batches_are_remembered() -> None:
    received = Received()
    give(received, 0, 70_000)
    assert received.count == 70_000
    assert received.cursor_after(70_000 - 65_535).position == 10 * (70_000 - 65_535)
    with pytest.raises(InvalidArgumentError, match=r"known: 4,465 to 70,000"):
        received.cursor_after(4_464)


def test_batches_are_counted_over_passes_from_the_one_that_begins_next() -> None:
    received = Received()
    give(received, 0, 2)
    left = received.noted(batches_of(9, 2))
    next(left)
    received.begin()
    next(left)  # of an iteration that was left behind
    give(received, 1, 3)
    give(received, 2, 4)
    assert received.count == 7
    assert [received.cursor_after(batches) for batches in (1, 3, 4, 7)] == [
        Cursor(1, 10),
        Cursor(1, 30),
        Cursor(2, 10),
        Cursor(2, 40),
    ]
    for batches in (0, 8):
        with pytest.raises(InvalidArgumentError, match="are known: 1 to 7"):
            received.cursor_after(batches)


def test_an_older_pass_is_not_written_down_any_more_when_a_newer_one_has_begun() -> None:
    received = Received()
    older = received.noted(batches_of(0, 3))
    next(older)
    give(received, 1, 1)
    assert next(older).cursor == Cursor(0, 20)
    assert received.count == 2
    assert received.cursor_in_pass(1) == Cursor(1, 10)


def test_what_is_noted_by_hand_is_known_by_number_as_far_back_as_was_asked() -> None:
    received = Received(keep=2)
    for number in range(1, 5):
        received.note(Cursor(0, number))
    assert [received.cursor_after(number).position for number in (3, 4)] == [3, 4]
    with pytest.raises(InvalidArgumentError, match="known: 3 to 4"):
        received.cursor_after(2)


def test_a_reader_has_one_of_them_until_it_is_forgotten() -> None:
    class Reader:
        """Stands for one: what it is does not matter."""

    first, second = Reader(), Reader()
    give(received_of(first), 0, 1)
    assert (received_of(first).count, received_of(second).count) == (1, 0)
    forgotten(first)
    assert received_of(first).count == 0
