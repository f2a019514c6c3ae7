"""The folder of a cache: which files there are, and what they are to the ledger.

```text
petastore-cache-1/
├─ lock          held while the table is changed; empty
├─ ledger        the table
├─ entries/ab/   an entry each, by the digest of its key, which begins with ab
├─ writing/      what is fetched or written now, locked by who does
└─ futures/      a reader's future each, locked by the reader
```
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from petastore.cache.entry_file import BLOCK
from petastore.cache.locks import locked
from petastore.cache.table import FUTURE, KEPT, WRITING, Rows

__all__ = ["Folder", "blocks", "names_in"]

_NAME = re.compile(r"[0-9a-f]{32}")


def blocks(size: int) -> int:
    """Bytes of whole blocks.

    Example:
        >>> blocks(1), blocks(8192)
        (4096, 8192)
    """
    return -(-size // BLOCK) * BLOCK


class Folder:
    """The files of one cache.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = root / "lock"
        self.ledger = root / "ledger"
        self.writing = root / "writing"
        self.futures = root / "futures"
        self._entries = f"{root}/entries/"

    def make(self) -> None:
        """Makes the folders, which nobody but the user may look into."""
        self.root.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.root, self.root / "entries", self.writing, self.futures):
            folder.mkdir(mode=0o700, exist_ok=True)

    def entry(self, name: str) -> str:
        """The path of an entry, as text: this is asked for each hit."""
        return f"{self._entries}{name[:2]}/{name}"

    def rename(self, path: Path, target: Path) -> None:
        """Moves a file inside the folder, in one step; makes the folder that it is moved to."""
        try:
            path.rename(target)
        except FileNotFoundError:
            target.parent.mkdir(mode=0o700, exist_ok=True)
            path.rename(target)

    def remove_entry(self, name: str) -> None:
        """Removes an entry, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            Path(self.entry(name)).unlink()

    def files(self) -> Rows:
        """All files that count. What is nobody's, or was left behind by the dead, is removed on the way.

        Files that are renamed meanwhile are found: those under `writing` are looked for first, which is where they come
        from, and each name counts once.
        """
        found: dict[str, tuple[int, int, int]] = {}
        found.update(self._held(self.writing, WRITING))
        found.update(self._held(self.futures, FUTURE))
        found.update(self._kept())
        digests = np.frombuffer(bytes.fromhex("".join(found)), np.dtype("<u8")).reshape(-1, 2)
        numbers = np.array(list(found.values()), np.int64).reshape(-1, 3)
        return Rows(digests, numbers[:, 0], numbers[:, 1], numbers[:, 2])

    def _kept(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        for path in _scanned(self._entries):
            if not path.is_dir(follow_symlinks=False):
                Path(path).unlink()
                continue
            for file in _scanned(path.path):
                with contextlib.suppress(FileNotFoundError):  # it leaves just now
                    found = file.stat(follow_symlinks=False)
                    if _NAME.fullmatch(file.name) and file.name[:2] == path.name and stat.S_ISREG(found.st_mode):
                        yield file.name, (blocks(found.st_size), KEPT, found.st_mtime_ns)
                    elif not stat.S_ISDIR(found.st_mode):
                        Path(file).unlink()

    @staticmethod
    def _held(folder: Path, state: int) -> Iterator[tuple[str, tuple[int, int, int]]]:
        for file in _scanned(folder):
            held = locked(Path(file.path), patience=0)
            if held is not None:
                with held:
                    Path(file).unlink()
            elif _NAME.fullmatch(file.name):
                with contextlib.suppress(FileNotFoundError):  # its holder may be done with it
                    size = blocks(file.stat(follow_symlinks=False).st_size)
                    if size:
                        yield file.name, (size, state, 0)


def names_in(folder: Path) -> set[str]:
    """The names of all files in a folder."""
    return {file.name for file in _scanned(folder)}


def _scanned(folder: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)
