"""A place in a plan. Pure."""

from __future__ import annotations

import dataclasses

__all__ = ["Cursor"]


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """What has been consumed of a plan: the same on every rank after the same step.

    Example:
        >>> Cursor()
        Cursor(epoch=0, position=0)
    """

    epoch: int = 0
    """Epochs that are complete."""

    position: int = 0
    """Positions of the current epoch that all ranks together have consumed."""
