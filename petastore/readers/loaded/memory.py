"""The memory of a reader, used again from pass to pass: its buffers, and the arena of the last pass."""

from __future__ import annotations

import contextlib

from petastore.decoding.buffers import Buffers
from petastore.readers.loaded.arena import Arena
from petastore.readers.loaded.layout import Layout

__all__ = ["Memory"]


class Memory:
    """Where the arrays of a reader come from. Passes take from it one after the other.

    Example:
        >>> memory = Memory()
        >>> memory.arena(Layout((), ()), 0) is None, memory.buffers.kept_bytes
        (True, 0)
    """

    def __init__(self) -> None:
        self.buffers = Buffers()
        """Arrays of columns, and of row groups at hand."""
        self._arena: Arena | None = None

    def arena(self, layout: Layout, rows: int) -> Arena | None:
        """Where row groups at hand stand together; None where they are arrays of their own.

        Args:
            layout: Of the row groups; the same each time.
            rows: For how many there has to be room; 0 is for none.
        """
        if rows and (self._arena is None or self._arena.rows < rows):
            with contextlib.suppress(OSError):  # so many addresses are not to be had
                self._arena = Arena(layout, rows, self.buffers)
        return self._arena if rows else None

    def close(self) -> None:
        """Gives all of it back, and from now on what comes back. May be called again."""
        self._arena = None
        self.buffers.close()
