"""What a number of an epoch means, before and after a state was loaded."""

from __future__ import annotations

import warnings

import pytest

from petastore.adapters.told_epochs import ToldEpochs, going_on
from petastore.plan.cursor import Cursor


def test_where_nothing_was_loaded_a_number_means_itself() -> None:
    epochs = ToldEpochs()
    assert [epochs.meant(told) for told in (0, 1, 5, 2)] == [0, 1, 5, 2]
    assert epochs.meant(4, loaded=Cursor()) == 4  # a reader at its beginning


@pytest.mark.parametrize(
    ("loaded", "told", "meant"),
    [
        (Cursor(2, 7, 2), 2, 2),  # the epoch that it stands in
        (Cursor(2, 7, 0), 2, 2),  # … of a pass of several epochs
        (Cursor(2, 7, 1), 1, 1),  # the first one of that pass
        (Cursor(3, 0, 2), 2, 2),  # what is left of an epoch: nothing
        (Cursor(3, 0, 2), 3, 3),  # the one after it
        (Cursor(2, 7, 2), 0, 2),  # who counts from 0
        (Cursor(3, 0, 3), 0, 3),
        (Cursor(3, 0, 3), 5, 5),  # nothing would be lost
    ],
)
def test_a_number_that_fits_a_loaded_state_is_taken_without_a_word(loaded: Cursor, told: int, meant: int) -> None:
    epochs = ToldEpochs()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert epochs.meant(told, loaded) == meant
        assert epochs.meant(told + 1) == meant + 1


@pytest.mark.parametrize(
    ("loaded", "given", "told", "due"),
    [
        (Cursor(2, 7, 2), 0, 1, 2),
        (Cursor(2, 7, 2), 0, 4, 2),
        (Cursor(3, 0, 2), 0, 1, 2),
        (Cursor(3, 0, 3), 5, 4, 3),  # batches after the beginning
    ],
)
def test_a_number_that_does_not_fit_is_warned_of_and_counts_from_the_state(
    loaded: Cursor, given: int, told: int, due: int
) -> None:
    epochs = ToldEpochs()
    said = rf"set_epoch\({told}\) .* state of epoch {due} .* {told + 1} will mean epoch {due + 1}"
    with pytest.warns(UserWarning, match=said):
        assert epochs.meant(told, loaded, given=given) == due
    assert epochs.meant(told + 1) == due + 1
    assert epochs.meant(due, loaded, given=given) == due  # a state anew, and its number


@pytest.mark.parametrize(("epoch", "begin"), [(2, Cursor(4, 17, 2)), (4, Cursor(4, 17, 4)), (3, None), (5, None)])
def test_a_loaded_state_is_gone_on_with_in_its_first_epoch_and_in_the_one_that_it_stands_in(
    epoch: int, begin: Cursor | None
) -> None:
    assert going_on(Cursor(4, 17, 2), epoch) == begin
