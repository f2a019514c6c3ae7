"""A scan that processes share: ranks that ask the same question look at each row group once between them.

The row groups are cut into parts of a few. A process claims a part by making a file that must not exist yet, and
publishes what it found as a file beside it. Who finds nothing left to claim waits for the others, but never for long: a
part whose owner is gone, or has shown no sign of life for a while, is looked at once more by whoever waits. So nobody
needs to know how many ranks there are, and one that is absent, slow or killed costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from petastore.once import once
from petastore.selecting.selection_file import Kept, read_selection_file, selection_bytes, write_aside

__all__ = ["SharedScan"]

_GROUPS_A_PART = 16
_POLL_S = 0.02
_log = logging.getLogger(__name__)


class SharedScan:
    """The row groups that one question needs to look at, a few at a time.

    A process takes parts from `claims`, gives the answers to `publish`, and asks `wait` for the parts that it did not
    get. Not thread-safe; each thread has its own.

    Args:
        directory: Where claims and answers lie; made when it is needed.
        key: The question.
        groups: The row groups, the same for all processes.
        rows: Rows of each row group of the dataset.
        done: A file that is there once the whole question is answered.
        patience_s: Seconds without a sign of life after which another process's part is looked at once more.
    """

    def __init__(
        self,
        directory: Path,
        key: str,
        groups: NDArray[np.int64],
        rows: NDArray[np.int64],
        *,
        done: Path,
        patience_s: float = 30.0,
    ) -> None:
        self._directory = directory
        self._key = key
        self._rows = rows
        self._parts: list[list[int]] = [
            groups[first : first + _GROUPS_A_PART].tolist() for first in range(0, len(groups), _GROUPS_A_PART)
        ]
        self._done = done
        self._patience_s = patience_s
        self._claimed: set[int] = set()
        self._signs: dict[int, tuple[int | None, float]] = {}

    def __len__(self) -> int:
        return len(self._parts)

    def groups(self, part: int) -> list[int]:
        """The row groups of a part."""
        return self._parts[part]

    def claims(self) -> Iterator[int]:
        """Parts that nobody else has, each claimed when it is asked for.

        It begins at some part, so that processes that start together do not run after each other.
        """
        first = secrets.randbelow(max(len(self), 1))
        for part in itertools.chain(range(first, len(self)), range(first)):
            if not self._done.exists() and self._claim(part):
                self._claimed.add(part)
                yield part

    def _claim(self, part: int) -> bool:
        if not self._is_shared:
            return True
        if self._answer_path(part).exists():
            return False
        claim = self._claim_path(part)
        try:
            with claim.open("x") as file:
                file.write(_ourselves())
        except FileExistsError:
            if not _owner_is_gone(claim):
                return False
            with contextlib.suppress(OSError):
                write_aside(claim, _ourselves().encode())
        except OSError as problem:
            _log.debug("a part is looked at without a claim: %s", problem)
        return True

    @once
    def _is_shared(self) -> bool:
        """Whether there is a directory to share."""
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            _log.warning("the scan is not shared: %s cannot be written: %s", self._directory, problem)
            return False
        return True

    def show_life(self, part: int) -> None:
        """Tells whoever waits for a part that we are at it."""
        with contextlib.suppress(OSError):
            os.utime(self._claim_path(part))

    def publish(self, part: int, kept: dict[int, Kept]) -> None:
        """Writes down what was found in the row groups of a part."""
        with contextlib.suppress(OSError):
            write_aside(self._answer_path(part), selection_bytes(self._part_key(part), kept, self._rows))
            self._claimed.discard(part)

    def give_up(self) -> None:
        """Lets go of what was claimed and not published, so that nobody waits for it. May be called again."""
        while self._claimed:
            with contextlib.suppress(OSError):
                self._claim_path(self._claimed.pop()).unlink()

    def wait(self, part: int) -> dict[int, Kept] | None:
        """What another process found in a part; None where we have to look ourselves, or where `done` is there."""
        for other in range(part, len(self)):
            self._silent_s(other)  # all are watched from the first wait on, or each would cost its own patience
        while True:
            found = read_selection_file(self._answer_path(part), self._part_key(part), self._rows)
            if found is not None and list(found) == self._parts[part]:
                return found
            is_late = self._silent_s(part) > self._patience_s
            if is_late or self._done.exists() or _owner_is_gone(self._claim_path(part)):
                return None
            time.sleep(_POLL_S)

    def _silent_s(self, part: int) -> float:
        """Seconds for which the claim of a part has not changed, as far as we have seen."""
        # Only whether its time changes counts: the clocks of other hosts are not ours.
        sign, now = _modified(self._claim_path(part)), time.monotonic()
        if part not in self._signs or self._signs[part][0] != sign:
            self._signs[part] = sign, now
        return now - self._signs[part][1]

    def _claim_path(self, part: int) -> Path:
        return self._directory / f"{part}.claim"

    def _answer_path(self, part: int) -> Path:
        return self._directory / f"{part}.selection"

    def _part_key(self, part: int) -> str:
        return f"{self._key}/{part}"


def _ourselves() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


def _modified(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _owner_is_gone(claim: Path) -> bool:
    """Whether a claim was made on this host by a process that has ended."""
    try:
        host, _, process = claim.read_text().partition(" ")
        if host == socket.gethostname() and os.name == "posix":
            os.kill(int(process), 0)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError, OverflowError):
        return False
    return False
