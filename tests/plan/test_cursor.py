"""Tests of `Cursor`: start and end of epochs and passes, endless passes, and equality."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.plan.cursor import Cursor, MixedCursor

counts = st.integers(0, 100)
cursors = st.builds(lambda first, more, position: Cursor(first + more, position, first), counts, counts, counts)


@given(cursors)
def test_cursor_of_a_new_iteration_starts_an_unread_epoch(cursor: Cursor) -> None:
    begun = cursor.next_pass()
    assert begun == Cursor(begun.epoch, 0, begun.epoch)
    assert begun.epoch == cursor.epoch + (1 if cursor.position else 0)
    assert begun.next_pass() == begun


@given(cursors, st.integers(1, 9))
def test_cursor_is_at_end_after_all_epochs(cursor: Cursor, epochs: int) -> None:
    at, steps = cursor.next_pass(), 0
    while not at.is_at_end(epochs):
        at, steps = at.next_epoch(), steps + 1
    assert (steps, at) == (epochs, cursor.next_pass().pass_ends(epochs))


@given(cursors)
def test_cursor_of_an_endless_iteration_is_never_at_end(cursor: Cursor) -> None:
    assert not cursor.is_at_end(None)


def test_cursor_of_a_mixture_is_distinguished_from_one_of_a_dataset() -> None:
    assert MixedCursor(0, 3, 0, (1, 2)) != Cursor(0, 3, 0)
    assert MixedCursor(0, 3, 0, (1, 2)) != MixedCursor(0, 3, 0, (2, 1))
    # At the start of an epoch or pass, no rows of any source are consumed.
    assert MixedCursor(0, 3, 0, (1, 2)).next_epoch() == Cursor(1, 0, 0)


def test_cursor_compares_by_value() -> None:
    assert len({Cursor(1, 2), Cursor(1, 2)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cursor().epoch = 1  # type: ignore[misc]
