"""Which epoch of the data a trainer means by the number that it tells, and whether a state that was loaded is of it."""

from __future__ import annotations

import dataclasses
import warnings

from petastore.callers import frames_inside_petastore
from petastore.plan.cursor import Cursor

__all__ = ["ToldEpochs", "going_on"]


def going_on(loaded: Cursor, epoch: int) -> Cursor | None:
    """Where the pass of an epoch goes on after a state was loaded; None where the state does not stand in that epoch.

    Example:
        >>> going_on(Cursor(4, 17, 2), 4), going_on(Cursor(4, 17, 2), 3)
        (Cursor(epoch=4, position=17, first_epoch=4), None)
    """
    stands_there = epoch in (loaded.epoch, loaded.first_epoch)
    return dataclasses.replace(loaded, first_epoch=epoch) if stands_there else None


class ToldEpochs:
    """From numbers of epochs that are told to those of the data.

    Who counts `for` loops from 0 in every process, as Lightning Fabric does, means the epoch of the state that was
    loaded by its 0, and the following one by its 1. A state is never dropped for the sake of a number: one that does
    not fit is warned of, and taken to count from where the state stands, too.

    Example:
        >>> epochs = ToldEpochs()
        >>> epochs.meant(0, loaded=Cursor(2, 40, 2)), epochs.meant(1), epochs.meant(2)
        (2, 3, 4)
        >>> epochs.meant(5, loaded=Cursor(5, 7, 5)), epochs.meant(6)
        (5, 6)
    """

    def __init__(self) -> None:
        self._ahead = 0  # of whoever tells numbers, since a state was loaded

    def meant(self, told: int, loaded: Cursor | None = None, *, given: int = 0) -> int:
        """The epoch of the data that a told number means.

        Args:
            told: The number, from 0.
            loaded: Where a state stands that was loaded, and that nobody has gone on from yet.
            given: Batches after `loaded` that were had, too.

        Warns:
            UserWarning: The number is neither that of the state's epoch nor 0.
        """
        if loaded is not None:
            due = loaded.first_epoch
            is_at_a_beginning = loaded == loaded.next_pass() and not given  # nothing would be lost
            fits = told in (due, loaded.epoch) or (is_at_a_beginning and told > 0)
            self._ahead = 0 if fits else due - told
            if told and not fits:
                _warn(told, due)
        return told + self._ahead


def _warn(told: int, due: int) -> None:
    warnings.warn(
        f"set_epoch({told}) was called after a state of epoch {due} was loaded. The state holds: this for goes on "
        f"there, and {told + 1} will mean epoch {due + 1}. Write set_epoch({due}) after loading this state (0 means "
        f"the same), or do not load it where epoch {told} is to begin",
        UserWarning,
        stacklevel=frames_inside_petastore(),
    )
