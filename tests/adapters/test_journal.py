"""Where batches end that were handed over, over several passes."""

from __future__ import annotations

import pytest

from petastore.adapters.journal import Journal
from petastore.errors import RequestError
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns


def give(journal: Journal, epoch: int, batches: int) -> None:
    cursors = (Cursor(epoch, 10 * number) for number in range(1, batches + 1))
    list(journal.new_pass().noted(Batch(Columns({}), 0, 0, cursor) for cursor in cursors))


def test_batches_are_counted_over_passes_from_the_one_that_begins_next() -> None:
    journal = Journal()
    give(journal, 0, 2)
    left = journal.new_pass()
    journal.begin()
    list(left.noted([Batch(Columns({}), 0, 0, Cursor(9, 9))]))  # of an iteration that was left behind
    give(journal, 1, 3)
    give(journal, 2, 4)
    assert journal.count == 7
    assert [journal.cursor_after(batches) for batches in (1, 3, 4, 7)] == [
        Cursor(1, 10),
        Cursor(1, 30),
        Cursor(2, 10),
        Cursor(2, 40),
    ]
    assert journal.count == 7
    for batches in (8, 2):
        with pytest.raises(RequestError, match="are known"):
            journal.cursor_after(batches)


def test_passes_are_not_kept_unless_somebody_counts() -> None:
    journal = Journal()
    for epoch in range(3):
        give(journal, epoch, 2)
    assert journal.count == 2
    assert journal.newest.cursor_after(1) == Cursor(2, 10)
