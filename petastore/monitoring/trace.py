"""Trace of an iteration as Chrome trace events, for Perfetto (https://ui.perfetto.dev) and `chrome://tracing`."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from petastore.monitoring.activity import Segment
from petastore.monitoring.waits import WaitMeter

__all__ = ["trace"]

_MOST_EVENTS = 1_000_000
"""Maximum number of events in memory: some hundred megabytes, and more than viewers show."""


@contextlib.contextmanager
def trace(source: Any, trace_file: str | os.PathLike[str]) -> Iterator[None]:
    """Record the stages of all threads of a reader in a `with` block, and write a JSON trace at the end of the block.

    Each thread has its own track with `storage`, `decoding`, `transform` and `assembly`. The track of the training
    thread has `wait for data` and `training`. Events of loading name the row groups and their file. Events of assembly
    have the number of the span (group of consecutive batches).

    Args:
        source: Reader, or loader over one.
        trace_file: Path of the file, such as `epoch.json`.

    Example:
        >>> import petastore, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder + "/ids", {"id": list(range(100))})
        ...     with petastore.make_reader(folder + "/ids") as reader, trace(reader, folder + "/epoch.json"):
        ...         rows = list(reader)
        ...     events = json.loads(Path(folder, "epoch.json").read_text())["traceEvents"]
        >>> sorted({event["name"] for event in events} & {"wait for data", "training"})
        ['training', 'wait for data']
    """
    listeners = getattr(source, "reader", source).meter.listeners
    recorder = _Recorder()
    listeners.append(recorder)
    try:
        yield
    finally:
        listeners.remove(recorder)
        Path(trace_file).write_text(json.dumps(recorder.document()), encoding="utf-8")


class _Recorder:
    """Listener of a wait meter: converts the logged work of all threads to trace events."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._names: dict[int, str] = {}
        self._last: tuple[WaitMeter, float] | None = None
        self._left_out = 0

    def __call__(self, meter: WaitMeter, segments: Sequence[Segment], began: float, ended: float) -> None:
        """Record a wait for a batch as trace events.

        Events are the training since the last wait, if that was of the same meter, then the wait itself, and the given
        segments. A segment is the time that one thread spent in one stage.
        """
        me = threading.get_ident()
        self._names.update((thread.ident or 0, thread.name) for thread in threading.enumerate())
        if self._last is not None and self._last[0] is meter:
            self._add("training", self._last[1], began, me, {})
        self._last = meter, ended
        self._add("wait for data", began, ended, me, {})
        for first, stop, stage, owner, thread in segments:
            self._add(stage, first, stop, thread, _arguments(meter, owner))

    def _add(self, name: str, began: float, ended: float, thread: int, arguments: dict[str, Any]) -> None:
        if len(self._events) >= _MOST_EVENTS:
            self._left_out += 1
            return
        place = {"ph": "X", "ts": began * 1e6, "dur": (ended - began) * 1e6, "pid": os.getpid(), "tid": thread}
        self._events.append({"name": name, "cat": "petastore", **place, "args": arguments})

    def document(self) -> dict[str, Any]:
        """Return the trace as a dict in the format of Chrome trace events, with the names of threads."""
        threads = {event["tid"] for event in self._events}
        names = [
            {"ph": "M", "name": "thread_name", "pid": os.getpid(), "tid": thread, "args": {"name": name}}
            for thread, name in sorted({0: "transform processes", **self._names}.items())
            if thread in threads
        ]
        return {"traceEvents": [*names, *self._events], "otherData": {"events_left_out": self._left_out}}


def _arguments(meter: WaitMeter, owner: int | tuple[int, ...]) -> dict[str, Any]:
    if isinstance(owner, int):
        return {"span": owner}
    return {"row_groups": list(owner), "file": meter.file_of(owner[0])}
