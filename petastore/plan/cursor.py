"""Cursor: position in a plan, from which a training run can resume. No I/O."""

from __future__ import annotations

import dataclasses

__all__ = ["Cursor", "MixedCursor"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """Position in a plan: the epoch, and the number of its rows that were consumed.

    After the same step, the cursor is the same on every rank. A *pass* is one iteration over a reader, through
    `num_epochs` epochs.

    Example:
        >>> Cursor()
        Cursor(epoch=0, position=0, first_epoch=0)
    """

    epoch: int = 0
    """Current or next epoch, counted from 0 across all iterations over the reader."""

    position: int = 0
    """Number of rows of the epoch that all ranks together have consumed."""

    first_epoch: int = 0
    """First epoch of the current pass (iteration over the reader).

    A pass of n epochs ends before epoch `first_epoch + n`."""

    @staticmethod
    def of_epoch(epoch: int) -> Cursor:
        """Return the cursor before the first row of an epoch, at which a pass begins.

        A pass is an iteration over a reader.

        Example:
            >>> Cursor.of_epoch(3)
            Cursor(epoch=3, position=0, first_epoch=3)
        """
        return Cursor(epoch, 0, epoch)

    def next_pass(self) -> Cursor:
        """Return the cursor at which the next iteration over the reader (pass) begins.

        This is the start of the next epoch, or of the current epoch if none of its rows was consumed. Every pass
        therefore has another order, even if each pass has only one epoch.

        Example:
            >>> Cursor(0, 0).next_pass(), Cursor(2, 7).next_pass()
            (Cursor(epoch=0, position=0, first_epoch=0), Cursor(epoch=3, position=0, first_epoch=3))
        """
        return Cursor.of_epoch(self.epoch + (self.position > 0))

    def next_epoch(self) -> Cursor:
        """Return the cursor at the end of the current epoch, in the same pass.

        A pass is an iteration over a reader.

        Example:
            >>> Cursor(2, 7, 1).next_epoch()
            Cursor(epoch=3, position=0, first_epoch=1)
        """
        return Cursor(self.epoch + 1, 0, self.first_epoch)

    def pass_ends(self, epochs: int) -> Cursor:
        """Return the cursor at the end of the current pass, which has `epochs` epochs.

        A pass is an iteration over a reader.

        Example:
            >>> Cursor(2, 7, 1).pass_ends(5)
            Cursor(epoch=6, position=0, first_epoch=1)
        """
        return Cursor(self.first_epoch + epochs, 0, self.first_epoch)

    def is_at_end(self, epochs: int | None) -> bool:
        """Return whether the current pass is finished, if a pass has `epochs` epochs.

        A pass is an iteration over a reader. If `epochs` is None, passes are endless, and the result is False.

        Example:
            >>> Cursor(3, 0, 1).is_at_end(2), Cursor(2, 7, 1).is_at_end(2), Cursor(9, 0, 1).is_at_end(None)
            (True, False, False)
        """
        return epochs is not None and self.epoch >= self.pass_ends(epochs).epoch


@dataclasses.dataclass(frozen=True, slots=True)
class MixedCursor(Cursor):
    """Position inside an epoch of a mixture with `batching="per_source"`."""

    taken: tuple[int, ...] = ()
    """Number of rows of each source consumed in this epoch; their sum is `position`."""
