"""Cursor: how far a run has come in a plan, and from where it can resume. No I/O."""

from __future__ import annotations

import dataclasses

__all__ = ["Cursor", "MixedCursor"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a plan: how many rows were consumed; the same on every rank after the same step.

    A *pass* is one iteration over a reader, through `num_epochs` epochs.

    Example:
        >>> Cursor()
        Cursor(epoch=0, position=0, first_epoch=0)
    """

    epoch: int = 0
    """Current or next epoch, from 0, counted across all passes (iterations over the reader)."""

    position: int = 0
    """Number of rows of the epoch that all ranks together have consumed."""

    first_epoch: int = 0
    """First epoch of the pass (iteration over the reader): a pass of n epochs ends before epoch `first_epoch + n`."""

    @staticmethod
    def of_epoch(epoch: int) -> Cursor:
        """Return the cursor before the first row of an epoch, with which an iteration over a reader begins.

        Example:
            >>> Cursor.of_epoch(3)
            Cursor(epoch=3, position=0, first_epoch=3)
        """
        return Cursor(epoch, 0, epoch)

    def next_pass(self) -> Cursor:
        """Return where the next iteration over the reader begins: the next epoch, or this one if it is untouched.

        Every iteration (pass) therefore has another order, even if each pass has only one epoch.

        Example:
            >>> Cursor(0, 0).next_pass(), Cursor(2, 7).next_pass()
            (Cursor(epoch=0, position=0, first_epoch=0), Cursor(epoch=3, position=0, first_epoch=3))
        """
        return Cursor.of_epoch(self.epoch + (self.position > 0))

    def next_epoch(self) -> Cursor:
        """Return the cursor at the end of the current epoch, in the same iteration over the reader (pass).

        Example:
            >>> Cursor(2, 7, 1).next_epoch()
            Cursor(epoch=3, position=0, first_epoch=1)
        """
        return Cursor(self.epoch + 1, 0, self.first_epoch)

    def pass_ends(self, epochs: int) -> Cursor:
        """Return the cursor at the end of the current iteration over the reader, which has this many epochs.

        Example:
            >>> Cursor(2, 7, 1).pass_ends(5)
            Cursor(epoch=6, position=0, first_epoch=1)
        """
        return Cursor(self.first_epoch + epochs, 0, self.first_epoch)

    def is_at_end(self, epochs: int | None) -> bool:
        """Return whether the iteration over the reader is finished after this many epochs; None is endless.

        Example:
            >>> Cursor(3, 0, 1).is_at_end(2), Cursor(2, 7, 1).is_at_end(2), Cursor(9, 0, 1).is_at_end(None)
            (True, False, False)
        """
        return epochs is not None and self.epoch >= self.pass_ends(epochs).epoch


@dataclasses.dataclass(frozen=True, slots=True)
class MixedCursor(Cursor):
    """Position in a mixture with `batching="per_source"`."""

    taken: tuple[int, ...] = ()
    """Rows of each source that were consumed in this epoch; their sum is `position`."""
