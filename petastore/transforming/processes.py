"""Transforms in worker processes: Python functions of rows, DataFrames or columns on all CPUs at a time.

A span is cut into pieces: whole batches where the function is called once a batch, else as many rows as take some
milliseconds. Workers take pieces as they become free, two at a time each so that none of them waits
for the parent; what they make is copied to its place in the columns of the span. So the result does not depend on the
number of workers, nor on which of them was faster.

Where the code disagrees with this, the code is wrong:

* **A function raises.** The error arrives as it would from a thread, with the worker's traceback as a note. Of several
  pieces the first tells its error.
* **A worker dies.** All that is waited for fails at once with `WorkerError`, which says how it ended and what it was
  at; the other workers are ended. The next pass of the reader starts new ones.
* **A worker cannot begin**, for one because a module that a function needs cannot be imported: `WorkerError`, too.
* **The reader is stopped, or forgotten, or the interpreter exits.** Workers end when they have done the call that they
  are at, and after half a second by force.
* **The parent is killed.** Workers end by themselves, also in the middle of a call.

Memory that is shared is bounded: each worker has two slots of two arenas, each as large as the largest piece. Nothing
of it outlives the processes, however they end (`petastore.transforming.transport`).
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
import select
import socket
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from petastore import forks
from petastore.decoding.buffers import Buffers
from petastore.decoding.decoded import Decoded, empty_column
from petastore.errors import InvalidArgumentError, ReaderClosedError, TransformError, WorkerError
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.by_value import what_cannot_travel
from petastore.transforming.results import function_name
from petastore.transforming.transform import Transform, TransformSpec
from petastore.transforming.worker import Call, Failure, Function, Made, Setup
from petastore.transforming.worker_process import WorkerProcess
from petastore.work.futures import after
from petastore.work.process import ProcessPool
from petastore.work.thread import available_cpus

__all__ = ["TransformProcesses"]

_SLOTS = (0, 1)
"""Of each worker: calls that it has at a time, the one that it is at included."""

_PIECE_SECONDS = 0.02
"""What a piece is meant to take: long against what it costs to hand over, short against what anybody waits for."""

_FIRST_PIECE_ROWS = 64
"""Rows of pieces while it is not known how long a row takes."""


class TransformProcesses:
    """The worker processes of one reader; started by `pool`, kept from pass to pass, ended by `close`.

    Thread-safe.

    Args:
        count: Worker processes.

    Raises:
        InvalidArgumentError: The system is none of the Unix family.

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
        if not hasattr(select, "poll") or not hasattr(socket, "AF_UNIX"):
            raise InvalidArgumentError(
                "reader_pool_type='process' needs Linux, macOS or another Unix: processes hand memory to each other "
                "through its sockets; use reader_pool_type='thread'"
            )
        self._count = count
        self._functions: list[_Sent] = []
        self._crew: _Crew | None = None
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
        """Makes a function known, before `pool` is called for the first time.

        Args:
            spec: The transform; it has a function.
            schema: The schema after it.
            batched: Whether the reader gives batches, or else rows.
            zones: Time zones that instants have in DataFrames, by the names of columns.
            buffers: Where the memory of what it makes comes from.

        Returns:
            What transforms the columns of a span: from columns, and the rows where batches begin, to the future of the
            columns after it. They have memory of their own, of `buffers`.

        Raises:
            InvalidArgumentError: The function cannot be sent to another process.
        """
        assert spec.func is not None  # noqa: S101 - readers ask for processes where there is a function
        by_batch = batched and spec.takes != "row"
        selected = None if spec.selected_fields is None else tuple(spec.selected_fields)
        function = Function(
            spec.func, schema, by_batch, spec.takes, dict(zones), spec.rng, tuple(spec.removed_fields or ()), selected
        )
        _check_that_it_travels(function)
        self._functions.append(_Sent(function, buffers, function_name(spec.func)))
        number = len(self._functions) - 1

        def transform(
            columns: dict[str, Decoded], offsets: NDArray[np.int64], /, **keys: NDArray[np.uint64]
        ) -> Future[dict[str, Decoded]]:
            return self._transform(number, columns, offsets, **keys)

        return transform

    def pool(self) -> ProcessPool:
        """The pool of one pass of the reader; starts the workers if none are there, and does not wait for them."""
        with self._lock:
            if self._closed:
                raise ReaderClosedError("the reader was stopped; open another one")
            if self._crew is None or self._crew.is_over:
                self._crew = _Crew(self._count, self._functions)
        return ProcessPool(available_cpus(), self._count, cancel_calls=self._crew.cancel)

    def _transform(
        self,
        number: int,
        columns: dict[str, Decoded],
        offsets: NDArray[np.int64],
        keys: NDArray[np.uint64] | None = None,
    ) -> Future[dict[str, Decoded]]:
        crew = self._crew
        assert crew is not None  # noqa: S101 - spans are assembled on the pool, which started it
        job = _Job(number, self._functions[number], columns, offsets, self._count, keys)
        made = after(job.done, job.finish)
        crew.submit(job)
        return made

    def close(self) -> None:
        """Ends the workers; whoever waits for them is woken. Does not wait itself; may be called again."""
        with self._lock:
            self._closed = True
        if self._crew is not None:
            self._crew.close()

    def join(self) -> None:
        """Waits until no worker runs, after `close`. May be called again."""
        if self._crew is not None:
            self._crew.join()

    def __del__(self) -> None:
        if self._crew is not None:
            self._crew.close()


@dataclasses.dataclass(eq=False)
class _Sent:
    """A function that workers have."""

    function: Function
    buffers: Buffers
    name: str
    seconds_per_row: float | None = None
    """What a row took in the last calls."""

    def rows_at_once(self, rows: int, workers: int) -> int:
        """Rows of a piece; no worker is left without one if there are enough."""
        share = -(-rows // workers)
        if self.seconds_per_row is None:
            return min(share, _FIRST_PIECE_ROWS)
        return max(min(share, int(_PIECE_SECONDS / max(self.seconds_per_row, 1e-9))), 1)

    def learn(self, seconds: float, rows: int) -> None:
        """Remembers what a call took, recent ones more than others."""
        if rows == 0:
            return
        took = seconds / rows
        self.seconds_per_row = took if self.seconds_per_row is None else (3 * self.seconds_per_row + took) / 4


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class _Piece:
    """Some rows of a job, half-open."""

    job: _Job
    number: int
    first: int
    stop: int
    offsets: NDArray[np.int64]

    def call(self) -> Call:
        """What a worker is told."""
        where = slice(self.first, self.stop)
        cut = {
            name: Decoded(
                np.ascontiguousarray(column.values[where]), None if column.missing is None else column.missing[where]
            )
            for name, column in self.job.columns.items()
        }
        return Call(self.job.function, cut, self.offsets, None if self.job.keys is None else self.job.keys[where])

    def __str__(self) -> str:
        return (
            f"{self.job.sent.name} on rows {self.first:,} to {self.stop - 1:,} of {self.job.rows:,} "
            "that were assembled together"
        )


class _Job:
    """One span on its way through the workers."""

    def __init__(
        self,
        function: int,
        sent: _Sent,
        columns: dict[str, Decoded],
        offsets: NDArray[np.int64],
        workers: int,
        keys: NDArray[np.uint64] | None,
    ) -> None:
        self.function = function
        self.sent = sent
        self.columns = columns
        self.keys = keys
        self.rows = int(offsets[-1])
        self._made = {field.name: self._empty(field) for field in sent.function.schema}
        self._borders = self._cut(offsets, sent.rows_at_once(self.rows, workers))
        self.done: list[Future[None]] = [Future() for _ in self._borders]
        """Of each piece, whether it is in its place."""
        # Of what was made alone: futures keep it for ever, and are kept by this job.
        self.finish = functools.partial(_without_idle_masks, self._made)
        """The columns, once all pieces are done."""

    def _cut(self, offsets: NDArray[np.int64], at_once: int) -> list[NDArray[np.int64]]:
        """Where the batches of each piece begin, and the last of them ends; a row function sees no batches."""
        if not self.sent.function.batched:
            return [np.array([first, min(first + at_once, self.rows)]) for first in range(0, self.rows, at_once)]
        cuts = [0]
        for batch in range(1, len(offsets)):
            if offsets[batch] - offsets[cuts[-1]] >= at_once or batch == len(offsets) - 1:
                cuts.append(batch)
        return [offsets[first : last + 1] for first, last in itertools.pairwise(cuts)]

    def pieces(self) -> Iterator[_Piece]:
        """What workers are given, in the order of rows."""
        for number, borders in enumerate(self._borders):
            yield _Piece(self, number, int(borders[0]), int(borders[-1]), borders - borders[0])

    def _empty(self, field: UnischemaField) -> Decoded:
        values = empty_column(field, self.rows, self.sent.buffers)
        return Decoded(values, None if values.dtype.hasobject else np.zeros(self.rows, dtype=np.bool_))

    def is_wanted(self, piece: _Piece) -> bool:
        """Whether what becomes of a piece still makes a difference."""
        return not self.done[piece.number].done()

    def put(self, piece: _Piece, made: Made) -> None:
        """The rows of a piece to their place."""
        self.sent.learn(made.seconds, piece.stop - piece.first)
        where = slice(piece.first, piece.stop)
        # In memory of their own: arrays in object columns are the user's to keep, and the arena is not.
        objects = {} if made.objects is None else pickle.loads(made.objects)  # noqa: S301 - of our own worker
        for name, column in (*made.columns.items(), *objects.items()):
            out = self._made[name]
            out.values[where] = column.values
            if out.missing is not None and column.missing is not None:
                out.missing[where] = column.missing
        with contextlib.suppress(InvalidStateError):  # nobody waits for it any more
            self.done[piece.number].set_result(None)

    def end(self, problem: BaseException | None, first: int = 0) -> None:
        """The pieces from one on will not be, unless they are done already: for a problem, or else by nobody's wish."""
        for done in self.done[first:]:
            if problem is None:
                done.cancel()
                continue
            # Done or cancelled by another thread in the same moment: whoever came first is right.
            with contextlib.suppress(InvalidStateError):
                done.set_exception(problem)


def _without_idle_masks(made: Mapping[str, Decoded]) -> dict[str, Decoded]:
    return {name: column.without_idle_mask() for name, column in made.items()}


class _Crew:
    """Workers that were started together, each attended by a thread of its own in the parent."""

    def __init__(self, count: int, functions: Sequence[_Sent]) -> None:
        self._owner = os.getpid()
        self._setup = Setup.of([sent.function for sent in functions])
        self._changed = threading.Condition()
        self._waiting: collections.deque[_Piece] = collections.deque()
        # Weakly: columns are given back by reference count as soon as nobody waits for them.
        self._jobs: weakref.WeakSet[_Job] = weakref.WeakSet()
        self._problem: BaseException | None = None
        self._closed = False
        self._workers: list[WorkerProcess] = []
        self._threads: list[threading.Thread] = []
        _crews.add(self)
        try:
            for number in range(count):
                self._workers.append(WorkerProcess(number, of=count))
        finally:  # those that were started have to be ended, whatever became of the others
            for worker in self._workers:
                # Daemons: whoever forgets to stop a reader must not be kept from exiting; `_end_all` ends them then.
                thread = threading.Thread(target=self._attend, args=(worker,), daemon=True, name=f"attends {worker}")
                self._threads.append(thread)
                thread.start()
            if len(self._workers) < count:
                self.close()

    @property
    def is_over(self) -> bool:
        """Whether these workers will make nothing more."""
        return self._closed or self._owner != os.getpid()

    def submit(self, job: _Job) -> None:
        with self._changed:
            if not self.is_over:
                self._jobs.add(job)
                self._waiting.extend(job.pieces())
                self._changed.notify_all()
                return
        job.end(self._problem)

    def cancel(self) -> None:
        """Forgets what waits; calls that are under way go on, and nobody hears of them."""
        if self._owner != os.getpid():
            return
        with self._changed:
            jobs = list(self._jobs)  # before what waits, which may be the last to hold them
            self._waiting.clear()
        for job in jobs:
            job.end(None)

    def close(self, problem: BaseException | None = None) -> None:
        """Ends all of it, for a reason or because it is done with."""
        if self._owner != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._problem = self._problem or problem
            jobs = list(self._jobs)  # before what waits, which may be the last to hold them
            self._waiting.clear()
            self._changed.notify_all()
        for worker in self._workers:
            worker.channel.hang_up()
        for job in jobs:
            job.end(problem)

    def join(self) -> None:
        """Waits until all workers have ended, after `close`."""
        for thread in self._threads:
            if self._owner == os.getpid() and thread is not threading.current_thread():
                thread.join()

    def _attend(self, worker: WorkerProcess) -> None:
        """One worker's life, in a thread of the parent."""
        sent: collections.deque[_Piece] = collections.deque()
        try:
            failure = worker.begin(self._setup)
            if failure is None:
                self._hand_out(worker, sent)
            else:
                self.close(self._cannot_begin(worker, failure))
        except EOFError:
            worker.end()
            if not self._closed:
                at = f"while it ran the transform {sent[0]}" if sent else "while it had nothing to do"
                self.close(WorkerError(f"{worker} {worker.how_it_ended()} {at}"))
        except BaseException as problem:  # noqa: BLE001 - nobody may wait for ever for what this thread was to do
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
            self._take(sent.popleft(), answer, worker)
            # An answer that is still there when its slot is used again would cost a new arena.
            del answer

    def _next(self, *, wait: bool) -> _Piece | None:
        """The piece that has waited longest; None where there is none, or all of it was closed."""
        while True:
            with self._changed:
                while wait and not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed or not self._waiting:
                    return None
                piece = self._waiting.popleft()
            if piece.job.is_wanted(piece):
                return piece

    def _send(self, worker: WorkerProcess, slot: int, piece: _Piece) -> bool:
        try:
            worker.channel.send(slot, piece.call())
        except EOFError:
            raise
        except Exception as problem:  # noqa: BLE001 - a value of the dataset's that cannot be pickled
            error = TransformError(
                f"a column cannot be sent to a worker process ({type(problem).__name__}: {problem}); use "
                "reader_pool_type='thread'"
            )
            error.__cause__ = problem
            piece.job.end(error, piece.number)
            return False
        return True

    def _take(self, piece: _Piece, answer: Made | Failure, worker: WorkerProcess) -> None:
        if not piece.job.is_wanted(piece):
            return
        if isinstance(answer, Failure):
            piece.job.end(answer.error(str(worker)), piece.number)
        else:
            piece.job.put(piece, answer)

    @staticmethod
    def _cannot_begin(worker: WorkerProcess, failure: Failure) -> WorkerError:
        error = WorkerError(f"{worker} could not begin: {failure.text}")
        error.add_note(f"In {worker}:\n{failure.trace}")
        return error


_crews: weakref.WeakSet[_Crew] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """The workers of readers that nobody stopped."""
    for crew in list(_crews):
        crew.close()
        crew.join()


def _check_that_it_travels(function: Function) -> None:
    try:
        Setup.of([function])
    except Exception as problem:  # whatever a value of the user's raises
        raise InvalidArgumentError(
            "reader_pool_type='process' sends the transform's function to other processes, but of "
            f"{function_name(function.func)} this cannot be sent: {what_cannot_travel(function.func)}; make it in the "
            "function, where it is needed, or use reader_pool_type='thread'"
        ) from problem
