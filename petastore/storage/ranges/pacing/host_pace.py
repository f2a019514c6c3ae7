"""The pace at which all processes of a host ask one storage, once it has refused one of them.

Until then there is nothing: no file, no lock, and a look whether others have made one, four times a second at most.
From then on each request waits for its turn, of which a small file in the system's temporary folder keeps account. Its
lock is held for microseconds, goes with the process that holds it, and is not waited for long: who cannot have it goes
by what it knows itself. Nothing in the file is believed but within bounds.
"""

from __future__ import annotations

import collections
import contextlib
import hashlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from petastore.forks import made_anew_in_children
from petastore.storage.ranges.pacing.pace import Pace

__all__ = ["HostPace", "pace_file"]

_LOOK_S = 0.25
_PATIENCE_S = 0.1
"""How long others may hold the lock, of whom each needs a few microseconds."""

_REMEMBERED = 256
_MOST_BYTES = 4096


class HostPace:
    """Gives requests their turns. Thread-safe; a forked child shares it as any process does.

    Args:
        path: The file that the processes share; None shares nothing.
        clock: Tells seconds, the same to all processes.

    Example:
        >>> pace = HostPace(None, clock=lambda: 100.0)
        >>> pace.wait(threading.Event()), pace.is_limited
        (True, False)
        >>> pace.refused()
        >>> pace.is_limited
        True
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._made: collections.deque[float] = collections.deque(maxlen=_REMEMBERED)
        self._answers = 0
        self._look_at = float("-inf")
        self._pace: Pace | None = None
        self._known_to: float | None = None
        self.make_anew()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """Has a lock that nobody holds, and has made no requests."""
        self._lock = threading.Lock()
        self._made.clear()
        self._answers = 0
        self._known_to = None

    @property
    def is_limited(self) -> bool:
        """Whether requests wait for their turns."""
        return self._pace is not None

    def wait(self, over: threading.Event, deadline: float = float("inf")) -> bool:
        """Waits for the turn of a request.

        Args:
            over: Set when nobody wants its answer any more.
            deadline: Until when its turn has to come, by the clock.

        Returns:
            Whether it has come, and anybody wants the answer.
        """
        if (self._pace is not None or self._is_told()) and not self._had_turn(over, deadline):
            return False
        self._made.append(self._clock())
        return not over.is_set()

    def _had_turn(self, over: threading.Event, deadline: float) -> bool:
        while not over.is_set():
            is_turn, seconds = self._turn()
            if self._clock() + seconds >= deadline or (seconds > 0 and over.wait(seconds)):
                return False
            if is_turn:
                return True
        return False

    def answered(self) -> None:
        """The storage has answered a request."""
        if self._pace is not None:
            with self._lock:
                self._answers += 1

    def refused(self) -> None:
        """The storage had no time for a request."""
        made = self._made_per_s()
        with self._shared() as (shared, write):
            now = self._clock()
            if shared is None:
                pace = Pace.after_refusal(now, made)
            else:
                pace = shared.refused(now, made, is_new=self._known_to != shared.began_at)
            self._known_to = pace.began_at
            self._pace = pace
            write(pace)

    def _turn(self) -> tuple[bool, float]:
        """Whether this is a turn, and for how many seconds to wait for it, or for another try."""
        with self._shared() as (shared, write):
            self._pace = shared
            if shared is None:
                return True, 0.0
            pace, seconds = shared.next_turn(self._clock())
            self._pace = pace or shared
            write(self._pace)
            return pace is not None, seconds

    def _is_told(self) -> bool:
        """Whether others have been refused."""
        now = self._clock()
        if self._path is None or now < self._look_at:
            return False
        self._look_at = now + _LOOK_S
        return self._path.exists()

    def _made_per_s(self) -> float:
        """Requests in the last second."""
        now, times = self._clock(), list(self._made)
        recent = [at for at in times if now - at < 1.0]
        is_all = len(recent) == _REMEMBERED and now > recent[0]  # there were more than are remembered
        return len(recent) / (now - recent[0]) if is_all else float(len(recent))

    @contextlib.contextmanager
    def _shared(self) -> Iterator[tuple[Pace | None, Callable[[Pace], object]]]:
        """A block in which no other thread or process changes the pace: what it is, and what writes another."""
        with self._lock, contextlib.ExitStack() as held:
            own = self._pace
            if own is not None and own.is_over(self._clock()):
                own = None
            file = None
            if self._path is not None:
                from petastore.cache.locks import locked

                with contextlib.suppress(OSError):  # then it is shared with nobody
                    file = locked(self._path, patience=_PATIENCE_S)
            answers, self._answers = self._answers, 0
            if file is None:
                yield own and own.answered(self._clock(), answers), lambda _: None
                return
            held.enter_context(file)
            fd, path = file.fd, file.path
            pace = Pace.unpacked(os.pread(fd, _MOST_BYTES, 0), self._clock())
            pace = pace and pace.answered(self._clock(), answers)
            written: list[Pace] = []
            yield pace, written.append
            with contextlib.suppress(OSError):
                if written:
                    os.pwrite(fd, written[-1].packed(), 0)
                else:
                    path.unlink(missing_ok=True)


def pace_file(*names: str) -> Path | None:
    """The file of what some names tell apart, in a folder of this user's alone; None where there can be none.

    Args:
        names: Of the storage, and what in it is counted by itself. Nothing of them can be read off the file's name.
    """
    folder = Path(tempfile.gettempdir()) / f"petastore-{os.getuid()}"
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError:
        return None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        return None  # somebody else was there first
    text = repr((_host(), *names))
    return folder / f"pace-{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=12).hexdigest()}"


def _host() -> str:
    """Tells this boot of this host from others, which may have the same temporary folder, and other clocks."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return os.uname().nodename
