"""Transforms in worker processes: run Python functions of rows, DataFrames or columns on all CPUs in parallel.

A span (consecutive batches that are assembled together) is divided into pieces: whole batches if the function is called
once per batch, otherwise as many rows as take some milliseconds. A free worker takes the next piece. Each worker gets
two pieces at a time, so that it does not wait for the parent. Each result is copied to its position in the columns of
the span, so the columns do not depend on the number or speed of workers.

These rules are the specification of this module:

* **The function raises an error.** The reader raises the same error as with threads, with the worker's traceback as a
  note. If several pieces fail, the error of the first piece is raised.
* **A worker dies.** All unfinished pieces fail at once with a `WorkerError`, which contains the exit status of the
  worker and its rows. The other workers are stopped. The next iteration over the reader starts new workers.
* **A worker cannot start**, for example because it cannot import a module that the function needs. This also raises a
  `WorkerError`.
* **The reader is stopped or garbage-collected, or the interpreter exits.** Workers end after their current call, or are
  killed after half a second.
* **The parent is killed.** Workers end by themselves, also in the middle of a call.

Shared memory is limited: each worker has two slots, one for each piece that it gets at a time. A slot has two regions
of shared memory (arenas), for a piece and for its result. The size of a region is that of the largest piece or result
so far, rounded up to a power of two. The memory is freed when the processes end, even if they are killed
(`petastore.transforming.transport`).
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import dataclasses
import functools
import itertools
import os
import pickle
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore import forks
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded, empty_column, mask_of_shape
from petastore.errors import InvalidArgumentError, ReaderClosedError, TransformError, WorkerError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.captured_generators import captured_values, package_of
from petastore.transforming.results import function_name
from petastore.transforming.transform import Transform, TransformSpec
from petastore.transforming.worker import Call, Failure, Function, Made, packed
from petastore.transforming.worker_process import WorkerProcess
from petastore.work.futures import after
from petastore.work.pools import ThreadPool, available_cpus

__all__ = ["TransformProcesses"]

_SLOTS = (0, 1)
"""Numbers of the slots of each worker. A slot is for one call that was sent to the worker, running or waiting."""

_PIECE_SECONDS = 0.02
"""Target seconds per piece (rows of one call): long compared with the transfer to a worker, and short compared with the
batches that are transformed together."""

_FIRST_PIECE_ROWS = 64
"""Number of rows in the first pieces (rows of one call), while the time per row is unknown."""


class TransformProcesses:
    """The worker processes of one reader, reused by each iteration over the reader until `close`.

    Thread-safe.

    Args:
        count: Number of worker processes.

    Example:
        >>> processes = TransformProcesses(1)
        >>> schema = Unischema("number", [UnischemaField("id", np.int64)])
        >>> transform = processes.add(TransformSpec(dict), schema, batched=False, buffers=Buffers())
        >>> pool = processes.pool()
        >>> future = transform({"id": Decoded(np.arange(3), None)}, np.array([0, 3]))
        >>> future.result()["id"].values
        array([0, 1, 2])
        >>> pool.close(); pool.join(); processes.close(); processes.join()
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._functions: list[Function] = []
        self._group: _WorkerGroup | None = None
        self._lock = forks.Lock()
        self._closed = False

    def add(
        self,
        spec: TransformSpec,
        schema: Unischema,
        *,
        batched: bool,
        buffers: Buffers,
        zones: Mapping[str, str] = MappingProxyType({}),
    ) -> Transform:
        """Register the function of a transform, and return a function that runs it in the worker processes.

        Call this method before `pool` is called for the first time.

        Args:
            spec: Transform with a function.
            schema: Schema after the transform.
            batched: Whether the reader returns batches instead of rows.
            zones: Time zones of DataFrame columns, by name.
            buffers: Allocator of memory for the results.

        Returns:
            Function that transforms the columns of consecutive batches. It takes the columns and the rows at which the
            batches begin, with the end; and returns a future of the transformed columns, in memory of `buffers`.

        Raises:
            InvalidArgumentError: The function cannot be sent to another process.
        """
        assert spec.func is not None  # noqa: S101 - only called for a spec with a function
        # `edit_fields` is not sent, because unpickling its fields imports codecs and pyarrow; `schema` has the same
        # fields.
        sent = dataclasses.replace(spec, edit_fields=None)
        function = Function(sent, schema, batched and spec.takes != "row", dict(zones))
        _check_that_it_travels(function)
        self._functions.append(function)
        number, pace = len(self._functions) - 1, _Pace()

        def transform(
            columns: dict[str, Decoded], offsets: NDArray[np.int64], /, *, keys: NDArray[np.uint64] | None = None
        ) -> Future[dict[str, Decoded]]:
            group = self._group
            assert group is not None  # noqa: S101 - the pool has started the processes
            rows = int(offsets[-1])
            made = {field.name: _empty(field, rows, buffers) for field in schema}
            borders = _cut(offsets, pace.rows_at_once(rows, self._count), by_batch=function.batched)
            shared = columns, keys, made, pace, threading.Lock()
            pieces = [
                _Piece(number, function, int(of_piece[0]), int(of_piece[-1]), of_piece, *shared) for of_piece in borders
            ]
            # The future references only the output `made`, not the pieces with the input, because it may live long.
            future = after([piece.done for piece in pieces], functools.partial(_without_idle_masks, made))
            group.submit(pieces)
            return future

        return transform

    def pool(self) -> ThreadPool:
        """Return the pool for one iteration over the reader; start worker processes if none run, without waiting."""
        with self._lock:
            if self._closed:
                raise ReaderClosedError("the reader was closed. Open another one")
            if self._group is None or self._group.is_over:
                self._group = _WorkerGroup(self._count, self._functions)
        return ThreadPool(available_cpus(), elsewhere=self._count, cancel_calls=self._group.cancel)

    def close(self) -> None:
        """End the workers, and wake waiting threads. Does not wait; may be called again."""
        with self._lock:
            self._closed = True
        if self._group is not None:
            self._group.close()

    def join(self) -> None:
        """After `close`, wait until all workers have ended. May be called again."""
        if self._group is not None:
            self._group.join()

    def __del__(self) -> None:
        if self._group is not None:
            self._group.close()


class _Pace:
    """Number of rows per piece (rows of one call), adapted to the time per row of the last calls."""

    def __init__(self) -> None:
        self._seconds_per_row: float | None = None

    def rows_at_once(self, rows: int, workers: int) -> int:
        """Return the number of rows per piece (rows of one call), so that every worker gets a piece if possible."""
        share = -(-rows // workers)
        if self._seconds_per_row is None:
            return min(share, _FIRST_PIECE_ROWS)
        return max(min(share, int(_PIECE_SECONDS / max(self._seconds_per_row, 1e-9))), 1)

    def learn(self, seconds: float, rows: int) -> None:
        """Update the mean time per row from the duration of a call; recent calls have more weight."""
        if rows:
            took, before = seconds / rows, self._seconds_per_row
            self._seconds_per_row = took if before is None else (3 * before + took) / 4


def _empty(field: UnischemaField, rows: int, buffers: Buffers) -> Decoded:
    values = empty_column(field, rows, buffers)
    return Decoded(values, None if values.dtype.hasobject else np.zeros(rows, dtype=np.bool_))


def _cut(offsets: NDArray[np.int64], at_once: int, *, by_batch: bool) -> list[NDArray[np.int64]]:
    """Cut a span (consecutive batches) into pieces (rows of one call) of about `at_once` rows.

    Args:
        offsets: Rows at which the batches of the span begin, and the end, shape (batches + 1,).
        at_once: Rows per piece.
        by_batch: Whether pieces consist of whole batches, of at least `at_once` rows except for the last piece.

    Returns:
        For each piece, the rows at which its batches begin, and its end; without `by_batch`, only its first row and
        its end.
    """
    rows = int(offsets[-1])
    if not by_batch:
        return [np.array([first, min(first + at_once, rows)]) for first in range(0, rows, at_once)]
    cuts = [0]
    for batch in range(1, len(offsets)):
        if offsets[batch] - offsets[cuts[-1]] >= at_once or batch == len(offsets) - 1:
            cuts.append(batch)
    return [offsets[first : last + 1] for first, last in itertools.pairwise(cuts)]


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Piece:
    """Rows `[first, stop)` of a span (consecutive batches), transformed by one call in a worker process."""

    number: int
    function: Function
    first: int
    stop: int
    borders: NDArray[np.int64]
    columns: Mapping[str, Decoded]
    keys: NDArray[np.uint64] | None
    made: dict[str, Decoded]
    """The columns of all rows of the span after the transform, to which all pieces copy their results."""
    pace: _Pace
    marking: threading.Lock
    """Lock held while the result of a piece is written to the masks of missing values, which all pieces share."""
    done: Future[None] = dataclasses.field(default_factory=Future)
    """Future that completes when the transformed rows are copied into `made`."""

    def call(self) -> Call:
        """Return the message that asks a worker to transform these rows."""
        where = slice(self.first, self.stop)
        cut = {
            name: Decoded(
                np.ascontiguousarray(column.values[where]), None if column.missing is None else column.missing[where]
            )
            for name, column in self.columns.items()
        }
        return Call(self.number, cut, self.borders - self.first, None if self.keys is None else self.keys[where])

    def __str__(self) -> str:
        rows = len(next(iter(self.columns.values())).values)
        return (
            f"{function_name(self.function.spec.func)} on rows {self.first:,} to {self.stop - 1:,} of {rows:,} "
            "that were assembled together"
        )

    def put(self, made: Made) -> None:
        """Copy the rows that a worker process has transformed to their positions in the output columns."""
        self.pace.learn(made.seconds, self.stop - self.first)
        where = slice(self.first, self.stop)
        # Unpickling copies object columns out of the shared memory, because the user may keep their arrays for long.
        objects = {} if made.objects is None else pickle.loads(made.objects)  # noqa: S301 - sent by our own worker
        for name, column in (*made.columns.items(), *objects.items()):
            out = self.made[name]
            out.values[where] = column.values
            if column.missing is not None:
                self._mark(name, column.missing)
        self.settle(None)

    def _mark(self, name: str, missing: NDArray[np.bool_]) -> None:
        with self.marking:  # because a piece with nulls inside its values replaces the mask that all pieces share
            out = self.made[name]
            if out.missing is not None and missing.ndim > out.missing.ndim:
                out = self.made[name] = Decoded(out.values, out.mask(missing.ndim))
            if out.missing is not None:
                out.missing[self.first : self.stop] = mask_of_shape(missing, out.missing.ndim)

    def settle(self, problem: BaseException | None) -> None:
        """Complete the future, with an exception if one is given; do nothing if the future is complete."""
        with contextlib.suppress(InvalidStateError):
            if problem is None:
                self.done.set_result(None)
            else:
                self.done.set_exception(problem)


def _without_idle_masks(made: Mapping[str, Decoded]) -> dict[str, Decoded]:
    return {name: column.without_idle_mask() for name, column in made.items()}


class _WorkerGroup:
    """Worker processes that were started together; a thread of the parent sends pieces (calls) to each process."""

    def __init__(self, count: int, functions: Sequence[Function]) -> None:
        self._owner = os.getpid()
        self._setup = packed(functions)
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Piece] = collections.deque()
        self._unfinished: set[_Piece] = set()
        self._problem: BaseException | None = None
        self._closed = False
        self._workers: list[WorkerProcess] = []
        self._threads: list[threading.Thread] = []
        _groups.add(self)
        try:
            for number in range(count):
                self._workers.append(WorkerProcess(number, of=count))
        finally:  # even if a worker could not start, the started workers need a thread that ends them
            for worker in self._workers:
                # Daemon threads, so that a reader that was not stopped does not block interpreter exit; `_end_all` ends
                # the threads.
                thread = threading.Thread(target=self._attend, args=(worker,), daemon=True, name=f"attends {worker}")
                self._threads.append(thread)
                thread.start()
            if len(self._workers) < count:
                self.close()

    @property
    def is_over(self) -> bool:
        """Whether `close` was called, or this process is a fork of the one that started the workers."""
        return self._closed or self._owner != os.getpid()

    def submit(self, pieces: Sequence[_Piece]) -> None:
        with self._changed:
            if not self.is_over:
                self._unfinished.update(pieces)
                self._waiting.extend(pieces)
                self._changed.notify_all()
                return
        self._end(pieces)

    def _end(self, pieces: Iterable[_Piece]) -> None:
        for piece in pieces:
            if self._problem is None:
                piece.done.cancel()
            else:
                piece.settle(self._problem)

    def _emptied(self) -> set[_Piece]:
        """Clear the queue, and return all pieces that are queued or running."""
        unfinished, self._unfinished = self._unfinished, set()
        self._waiting.clear()
        return unfinished

    def cancel(self) -> None:
        """Cancel all unfinished pieces; running calls continue, but their results are dropped."""
        if self._owner == os.getpid():
            with self._changed:
                pieces = self._emptied()
            self._end(pieces)

    def close(self, problem: BaseException | None = None) -> None:
        """End all workers; unfinished pieces fail with the exception, or are cancelled without one."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._problem = self._problem or problem
            pieces = self._emptied()
            self._changed.notify_all()
        for worker in self._workers:
            worker.channel.hang_up()
        self._end(pieces)

    def join(self) -> None:
        """Wait until all workers have ended, after `close`."""
        for thread in self._threads:
            if self._owner == os.getpid() and thread is not threading.current_thread():
                thread.join()

    def _attend(self, worker: WorkerProcess) -> None:
        """Start one worker process, send pieces (calls) to it, and end it; each process has a thread that runs this."""
        sent: collections.deque[_Piece] = collections.deque()
        try:
            failure = worker.begin(self._setup)
            if failure is None:
                self._hand_out(worker, sent)
            else:
                error = WorkerError(f"{worker} could not start: {failure.text}")
                error.add_note(f"In {worker}:\n{failure.trace}")
                self.close(error)
        except EOFError:
            worker.end()
            if not self._closed:
                at = f"while it ran the transform {sent[0]}" if sent else "while it had nothing to do"
                self.close(WorkerError(f"{worker} {worker.how_it_ended()} {at}"))
        except BaseException as problem:  # noqa: BLE001 - otherwise the consumer would wait forever for this thread
            self.close(problem)
        finally:
            worker.end()

    def _hand_out(self, worker: WorkerProcess, sent: collections.deque[_Piece]) -> None:
        free = collections.deque(_SLOTS)
        while True:
            while free and (piece := self._next(wait=not sent)) is not None:
                if self._send(worker, free[0], piece):
                    free.popleft()
                    sent.append(piece)
                del piece
            if not sent:
                return
            slot, answer = worker.channel.receive()
            free.append(slot)
            piece = sent.popleft()
            if not piece.done.done():
                if isinstance(answer, Failure):
                    piece.settle(answer.error(str(worker)))
                else:
                    piece.put(answer)
            with self._changed:
                self._unfinished.discard(piece)
            # References are dropped, because new shared memory would be needed while the last result is referenced.
            del answer, piece

    def _next(self, *, wait: bool) -> _Piece | None:
        """Remove the oldest piece from the queue; return None if the queue is empty, or after `close`.

        Args:
            wait: Whether to wait for a piece if the queue is empty.
        """
        with self._changed:
            while wait and not self._waiting and not self._closed:
                self._changed.wait()
            return None if self._closed or not self._waiting else self._waiting.popleft()

    def _send(self, worker: WorkerProcess, slot: int, piece: _Piece) -> bool:
        try:
            worker.channel.send(slot, piece.call())
        except EOFError:
            raise
        except Exception as problem:  # noqa: BLE001 - a value of the dataset may not be picklable
            error = TransformError(
                f"columns must be picklable for worker processes, got {type(problem).__name__}: {problem}. Use "
                "reader_pool_type='thread'"
            )
            error.__cause__ = problem
            piece.settle(error)
            with self._changed:
                self._unfinished.discard(piece)
            return False
        return True


_groups: weakref.WeakSet[_WorkerGroup] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End the workers of readers that were not stopped."""
    for group in list(_groups):
        group.close()
        group.join()


def _check_that_it_travels(function: Function) -> None:
    try:
        packed([function])
    except Exception as problem:  # pickling a user's value may raise any exception
        func = function.spec.func
        raise InvalidArgumentError(
            f"transform_spec must have a picklable function for reader_pool_type='process', got {function_name(func)}: "
            f"{_unpicklable_part(func)} cannot be sent ({problem}). Create that object inside the function, or use "
            "reader_pool_type='thread'"
        ) from problem


def _unpicklable_part(func: Any) -> str:
    """Return as text the path of variables and attributes from a function to the value that cannot be pickled."""
    import cloudpickle

    path: list[str] = []
    seen: list[Any] = []
    thing, home = func, package_of(func)
    while thing is not None:
        seen.append(thing)
        parts, thing = captured_values(thing, home), None
        for name, part in parts:
            try:
                cloudpickle.dumps(part)
            except Exception:  # noqa: BLE001 - an object of the user may raise any exception
                if not any(part is one for one in seen):
                    path += [name] if name else []
                    thing = part
                    break
    return ", ".join(path) or "the function itself"
