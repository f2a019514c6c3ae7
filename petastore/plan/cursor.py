"""A place in a plan. Pure."""

from __future__ import annotations

import dataclasses

__all__ = ["Cursor", "MixedCursor"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """What has been consumed of a plan: the same on every rank after the same step.

    Example:
        >>> Cursor()
        Cursor(epoch=0, position=0, first_epoch=0)
    """

    epoch: int = 0
    """The epoch that comes next or is under way, from 0; it counts on through all passes."""

    position: int = 0
    """Positions of the epoch that all ranks together have consumed."""

    first_epoch: int = 0
    """The epoch that the pass began with: a pass of n epochs ends before `first_epoch + n`."""

    @staticmethod
    def of_epoch(epoch: int) -> Cursor:
        """Before the first row of an epoch, with which a pass begins.

        Example:
            >>> Cursor.of_epoch(3)
            Cursor(epoch=3, position=0, first_epoch=3)
        """
        return Cursor(epoch, 0, epoch)

    def next_pass(self) -> Cursor:
        """The beginning of a new pass: of the epoch under way if nothing of it was consumed, else of the next one.

        So every pass has an order of its own, also when each is one epoch.

        Example:
            >>> Cursor(0, 0).next_pass(), Cursor(2, 7).next_pass()
            (Cursor(epoch=0, position=0, first_epoch=0), Cursor(epoch=3, position=0, first_epoch=3))
        """
        return Cursor.of_epoch(self.epoch + (self.position > 0))

    def next_epoch(self) -> Cursor:
        """Where the epoch under way ends, in the same pass.

        Example:
            >>> Cursor(2, 7, 1).next_epoch()
            Cursor(epoch=3, position=0, first_epoch=1)
        """
        return Cursor(self.epoch + 1, 0, self.first_epoch)

    def pass_ends(self, epochs: int) -> Cursor:
        """Where a pass of so many epochs ends.

        Example:
            >>> Cursor(2, 7, 1).pass_ends(5)
            Cursor(epoch=6, position=0, first_epoch=1)
        """
        return Cursor(self.first_epoch + epochs, 0, self.first_epoch)

    def is_at_end(self, epochs: int | None) -> bool:
        """Whether nothing is left of a pass of so many epochs; None is a pass without end.

        Example:
            >>> Cursor(3, 0, 1).is_at_end(2), Cursor(2, 7, 1).is_at_end(2), Cursor(9, 0, 1).is_at_end(None)
            (True, False, False)
        """
        return epochs is not None and self.epoch >= self.pass_ends(epochs).epoch


@dataclasses.dataclass(frozen=True, slots=True)
class MixedCursor(Cursor):
    """A place in a mixture whose batches are each of one source."""

    taken: tuple[int, ...] = ()
    """Rows of each source that were consumed in this epoch; their sum is `position`."""
