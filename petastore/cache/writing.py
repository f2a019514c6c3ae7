"""A file on its way into the cache: written aside while its name is held, counted before it grows, and renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

from petastore.cache.folder import Folder
from petastore.cache.ledger import Ledger
from petastore.cache.locks import LockedFile, locked
from petastore.cache.table import KEPT

__all__ = ["Writing"]

Write: TypeAlias = Callable[[int, int], None]
"""Writes a file, given the number under which it is open and its slot in the ledger."""


class Writing:
    """Holds a name, so that others who want what will be under it wait. Leaves nothing aside when its block ends.

    Args:
        folder: Of the cache.
        ledger: Of the same.
        digest: The name.
        file: Of that name under `writing`, held by the caller until now.

    Raises:
        OSError: What a killed writer left there cannot be removed.
    """

    def __init__(self, folder: Folder, ledger: Ledger, digest: bytes, file: LockedFile) -> None:
        self._folder = folder
        self._ledger = ledger
        self._digest = digest
        self.file: LockedFile | None = file
        self.evicted = 0
        """Bytes that went to make room."""
        try:
            if os.fstat(file.fd).st_size:
                self._forget(file)  # whoever wrote it was killed
        except BaseException:
            file.close()
            raise

    @classmethod
    def begun(cls, folder: Folder, ledger: Ledger, digest: bytes, *, patience: float) -> Self | None:
        """Takes a name, once nobody else holds it; None where somebody does for longer than so many seconds.

        Raises:
            OSError: It cannot be held.
        """
        file = locked(folder.writing / digest.hex(), patience=patience)
        return None if file is None else cls(folder, ledger, digest, file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        file, self.file = self.file, None
        if file is None or file.fd < 0:
            return
        try:
            with contextlib.suppress(OSError):  # what cannot be removed now is removed when the cache is next opened
                if os.fstat(file.fd).st_size:
                    self._forget(file)
                file.path.unlink()
        finally:
            file.close()

    def write(self, size: int, write: Write, *, has_to: bool = False) -> bool:
        """Makes room, and writes.

        Args:
            size: Bytes that the file will have.
            write: Writes them.
            has_to: It comes in whatever is there.

        Returns:
            False where it is not to come in.

        Raises:
            OSError: The disk did not take it.
        """
        assert self.file is not None, "the block has ended"  # noqa: S101 - for type checkers
        slot, self.evicted = self._ledger.reserve(self.file, size, has_to=has_to)
        if slot is None:
            return False
        write(self.file.fd, slot)
        return True

    def place(self, target: Path, state: int = KEPT) -> LockedFile:
        """Gives what was written its place, where it counts as what a state says.

        Returns:
            The file, which the caller holds from now on.

        Raises:
            OSError: It cannot be renamed, or the ledger cannot be used: the next who opens the cache settles it.
        """
        file = self.file
        assert file is not None, "the block has ended"  # noqa: S101 - for type checkers
        self._folder.rename(file.path, target)
        self.file, file.path = None, target  # the name under `writing` may be another's at once
        try:
            if not self._ledger.commit(self._digest, state):
                target.unlink(missing_ok=True)
        except BaseException:
            file.close()
            raise
        return file

    def _forget(self, file: LockedFile) -> None:
        os.ftruncate(file.fd, 0)  # bytes go before what counts them
        self._ledger.release(self._digest)
