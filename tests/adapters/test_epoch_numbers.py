"""Tests of `set_epoch` numbers with and without a loaded state: which epoch is read, and when a warning is raised."""

from __future__ import annotations

import warnings

import pytest

from petastore.adapters.epoch_tracker import EpochNumbers, resumed_in
from petastore.plan.cursor import Cursor


def test_set_epoch_number_is_used_unchanged_without_a_loaded_state() -> None:
    numbers = EpochNumbers()
    assert [numbers.meant(told) for told in (0, 1, 5, 2)] == [0, 1, 5, 2]
    assert numbers.meant(4, loaded=Cursor()) == 4  # a reader at its start


@pytest.mark.parametrize(
    ("loaded", "told", "meant"),
    [
        (Cursor(2, 7, 2), 2, 2),  # the epoch of the state
        (Cursor(2, 7, 0), 2, 2),  # the epoch of the state, in a pass of several epochs
        (Cursor(2, 7, 1), 1, 1),  # the first epoch of that pass
        (Cursor(3, 0, 2), 2, 2),  # the epoch before the state, of which no rows remain
        (Cursor(3, 0, 2), 3, 3),  # the epoch that starts at the state
        (Cursor(2, 7, 2), 0, 2),  # set_epoch counts from 0 in the resumed process
        (Cursor(3, 0, 3), 0, 3),
        (Cursor(3, 0, 3), 5, 5),  # the state is at the start of an epoch, so no rows are lost
    ],
)
def test_set_epoch_number_that_matches_a_loaded_state_gives_no_warning(loaded: Cursor, told: int, meant: int) -> None:
    numbers = EpochNumbers()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert numbers.meant(told, loaded) == meant
        assert numbers.meant(told + 1) == meant + 1


@pytest.mark.parametrize(
    ("loaded", "given", "told", "due"),
    [
        (Cursor(2, 7, 2), 0, 1, 2),
        (Cursor(2, 7, 2), 0, 4, 2),
        (Cursor(3, 0, 2), 0, 1, 2),
        (Cursor(3, 0, 3), 5, 4, 3),  # batches were delivered after the start of the epoch
    ],
)
def test_set_epoch_number_that_does_not_match_a_loaded_state_warns(
    loaded: Cursor, given: int, told: int, due: int
) -> None:
    numbers = EpochNumbers()
    said = rf"set_epoch\({told}\) .* state of epoch {due} .* set_epoch\({told + 1}\) .* begin epoch {due + 1}"
    with pytest.warns(UserWarning, match=said):
        assert numbers.meant(told, loaded, given=given) == due
    assert numbers.meant(told + 1) == due + 1
    assert numbers.meant(due, loaded, given=given) == due  # the state is loaded again, and set_epoch matches it


@pytest.mark.parametrize(("epoch", "begin"), [(2, Cursor(4, 17, 2)), (4, Cursor(4, 17, 4)), (3, None), (5, None)])
def test_loaded_state_resumes_in_its_first_or_current_epoch(epoch: int, begin: Cursor | None) -> None:
    assert resumed_in(Cursor(4, 17, 2), epoch) == begin
