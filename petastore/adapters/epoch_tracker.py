"""Epoch tracker: the position of training in a reader's batches, for checkpoints.

A loader has one `EpochTracker`, which starts the `for` loops over the reader, chooses the epoch of each loop, and
implements `state_dict`, `len` and `set_epoch`. If a framework prefetches batches, the reader is ahead of training. The
user then counts the batches that training has received, and `DeliveredBatches` converts this number to a position.
"""

from __future__ import annotations

import collections
import dataclasses
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

# Imported eagerly, so that worker threads need not import it later. Importing a framework takes seconds anyway.
import pyarrow.compute  # noqa: F401

from petastore import forks
from petastore.callers import frames_inside_petastore
from petastore.errors import InvalidArgumentError, ReaderClosedError
from petastore.plan.cursor import Cursor
from petastore.plan.rank_plan import RankPlan
from petastore.plan.request import whole_number
from petastore.plan.state import dump_state
from petastore.readers.batch import Batch
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import MOVED

__all__ = ["DeliveredBatches", "EpochNumbers", "EpochTracker", "delivered_of", "epochs_of", "resumed_in"]

_REMEMBERED = 65_536
"""Maximum number of stored cursors (reader positions), one for each batch.

It is more than any framework prefetches, and the cursors take a few megabytes.
"""


def epochs_of(num_epochs: int | None) -> int:
    """Return the number of epochs of a `for` loop.

    Raises:
        TypeError: The reader is endless (`num_epochs` is None).
    """
    if num_epochs is None:
        raise TypeError(
            "a reader with num_epochs=None is endless and has no length. Use reader.steps_per_epoch(batch_size) for "
            "the length of an epoch"
        )
    return int(num_epochs)


class EpochTracker:
    """Starts the `for` loops over one reader, and tracks the position of training.

    A loop iterates over all epochs of the reader. The first loop continues at the reader's position, and so does the
    loop after `load_state_dict` or `reshard`. `EpochNumbers` defines how a loaded state and `set_epoch` combine. Every
    other loop begins at the first row of the epoch that `set_epoch` set, or else of the next epoch.

    Only the newest loop may continue, because a reader has one position. An older loop raises an error when it requests
    its next batch. The error cannot be raised earlier, because an iterator that was left by `break` cannot be
    distinguished from one that is still in use.

    Training has received all batches that the reader returned, except with `start_ahead`, which prepares the next batch
    in advance. Any thread may start or continue a loop.

    Args:
        reader: The reader.
        delivered: Record of the batches that a prefetching framework received; None records nothing.
    """

    def __init__(self, reader: Any, delivered: DeliveredBatches | None = None) -> None:
        self._reader = reader
        self._delivered = delivered
        self._newest = 0
        self._plan: Any = None  # plan of the newest loop; `reshard` and `load_state_dict` replace the reader's plan
        self.begun = Cursor()
        """Position at which the newest loop began."""
        self._received: Cursor | None = (
            None  # cursor after the batch that is in training, while the next one is transferred
        )
        self._in_flight: Cursor | None = None  # cursor after the batch that is being transferred
        self._epoch: int | None = None  # epoch at which the next loop begins
        self._numbers = EpochNumbers()
        self.make_anew()
        forks.made_anew_in_children(self)

    def make_anew(self) -> None:
        """Create a new lock.

        A forked child calls this method, because a thread of the parent may hold the old lock.
        """
        self._lock = threading.Lock()

    def start(self, batch_size: int, *, again: bool = False) -> Iterator[Batch]:
        """Return an iterator of a new loop's batches; the loop begins at its first `next`.

        Args:
            batch_size: Rows of a batch.
            again: Whether to begin where the newest loop began, unless `load_state_dict` or `reshard` was called since
                then.

        Raises:
            InvalidArgumentError: Raised by `next`: a newer loop over the reader has begun.
            ReaderClosedError: Raised by `next`: a state was loaded, or an error was raised before.
        """
        return RaisesAfterErrors(self._batches(batch_size, again))

    def _batches(self, batch_size: int, again: bool) -> Iterator[Batch]:
        delivered = self._delivered
        with self._lock:
            self._newest += 1
            ours = self._newest
            self._begin(again)
            number = 0 if delivered is None else delivered.begin_pass()
            batches = iter(self._reader.iter_batches(batch_size))
        while True:
            with self._lock:
                if ours != self._newest:
                    raise _taken_over()
                batch = next(batches, None)
            if batch is None:
                return
            if delivered is not None:
                delivered.note(number, batch.cursor)
            yield batch

    def start_ahead(self, batch_size: int, begin: Callable[[Batch], Callable[[], Any]]) -> Iterator[Any]:
        """Return an iterator of a new loop's converted batches; it prefetches one batch.

        An error in preparing a batch is raised when this batch is requested, after the previous batch.

        Args:
            batch_size: Rows of a batch.
            begin: Function that starts the conversion of a batch and returns a function that finishes the conversion.

        Raises:
            InvalidArgumentError: Raised by `next`: a newer loop over the reader has begun.
            ReaderClosedError: Raised by `next`: a state was loaded, or an error was raised before.
        """
        return RaisesAfterErrors(self._made_ahead(batch_size, begin))

    def _made_ahead(self, batch_size: int, begin: Callable[[Batch], Callable[[], Any]]) -> Iterator[Any]:
        batches = self.start(batch_size)
        following = self._begin_next(batches, begin)
        ours, plan = self._newest, self._reader.plan
        while following is not None:
            (finish, problem, cursor), following = following, None
            if problem is None:
                following = self._begin_next(batches, begin)
            if self._newest != ours:
                raise _taken_over()
            if self._reader.plan is not plan:
                raise ReaderClosedError(MOVED)
            if problem is not None:
                raise problem
            made = finish()
            self._received = cursor
            del finish
            yield made
            del made

    def _begin_next(
        self, batches: Iterator[Batch], begin: Callable[[Batch], Callable[[], Any]]
    ) -> tuple[Callable[[], Any], Exception | None, Cursor | None] | None:
        """Start the conversion of the next batch.

        Returns:
            Function that finishes the conversion, exception (or None), and cursor after the batch (None after an
            exception); None instead of the tuple if there are no more batches.
        """
        try:
            batch = next(batches, None)
            if batch is None:
                return None
            self._in_flight = batch.cursor
            return begin(batch), None, batch.cursor
        except Exception as problem:  # noqa: BLE001 - any error is raised when the loop reaches this batch
            return lambda: None, problem, None

    @property
    def is_moved(self) -> bool:
        """Whether the reader got another plan after the newest loop began.

        `load_state_dict` and `reshard` replace the plan.
        """
        return self._reader.plan is not self._plan

    @property
    def is_over(self) -> bool:
        """Whether training has received the last batch of the loop."""
        return (self._behind or self._reader.cursor).is_at_end(self._reader.num_epochs)

    def steps(self, batch_size: int, *, again: bool = False) -> int | None:
        """Return the number of batches of the current loop, or of the next one.

        The number is that of the next loop after the end of the current one, and after `load_state_dict` or `reshard`.
        A loop that resumes from a loaded state has only the remaining batches. Return None if loops are endless.

        Args:
            batch_size: Rows of a batch.
            again: As in `start`, for the next loop.
        """
        with self._lock:
            is_next = self.is_moved or (self.is_over and not again)
            plan, begin = self._next_begin(settles=False) if is_next else (self._reader.plan, self.begun)
        steps: int | None = plan.steps_left(batch_size, begin)
        return steps

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch with which the next loop begins.

        If a state was loaded, `EpochNumbers` defines the epoch.

        Raises:
            InvalidArgumentError: The number is invalid, or a loop has several epochs.
        """
        epoch = whole_number(epoch, name="epoch", least=0)
        if self._reader.num_epochs not in (1, None):
            raise InvalidArgumentError(
                f"num_epochs must be 1 for set_epoch({epoch}), got {self._reader.num_epochs}: set_epoch counts each "
                "`for` loop as one epoch. Write make_reader(…, num_epochs=1), and let the trainer loop over epochs "
                "(max_epochs of Lightning)"
            )
        with self._lock:
            self._epoch = epoch

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch that training has received.

        It is a dict of JSON values.
        """
        behind = self._behind
        state: dict[str, Any] = self._reader.state_dict() if behind is None else dump_state(self._plan, behind)
        return state

    def _begin(self, again: bool) -> None:
        """Move the reader to the start of the next loop.

        Args:
            again: Whether to begin where the newest loop began, unless `load_state_dict` or `reshard` was called since
                then.
        """
        reader = self._reader
        repeats = again and not self.is_moved
        plan, begin = (reader.plan, self.begun) if repeats else self._next_begin(settles=True)
        if begin != reader.cursor or reader.last_row_consumed or not self.is_moved or plan is not reader.plan:
            reader.replan(plan, begin)
        self._epoch = self._received = None
        self._plan, self.begun = reader.plan, begin

    def _next_begin(self, *, settles: bool) -> tuple[RankPlan, Cursor]:
        """Return the plan of the next loop, and the cursor at which the loop begins.

        Args:
            settles: Whether the loop begins now, so that later numbers of `set_epoch` count from the loop's epoch.
        """
        reader, behind = self._reader, self._behind
        plan: RankPlan = reader.plan
        if self._epoch is not None:
            # The reader's position counts only after `load_state_dict` or `reshard`: otherwise, another loader over the
            # same reader may have moved it.
            is_put = self.is_moved and reader.cursor == reader.begin and not reader.last_row_consumed
            loaded = reader.cursor if is_put else None
            is_begun = loaded is not None and plan.is_begun(loaded)
            epoch = self._numbers.meant(self._epoch, loaded, given=is_begun, settles=settles)
            resumed = None if loaded is None else resumed_in(loaded, epoch)
            return (plan.restarted(epoch), Cursor.of_epoch(epoch)) if resumed is None else (plan, resumed)
        if behind is not None or reader.last_row_consumed or not self.is_moved:
            return plan, plan.next_pass(behind or reader.cursor)
        return plan, reader.cursor

    @property
    def _behind(self) -> Cursor | None:
        """Position of training, if it is one batch behind the reader; otherwise None.

        Training is behind while one batch is prefetched, unless the reader was moved since then.
        """
        received, in_flight = self._received, self._in_flight
        if received is None or received is in_flight or self.is_moved or self._reader.cursor != in_flight:
            return None
        return received


def _taken_over() -> InvalidArgumentError:
    """Return the error for a loop that a newer loop over the same reader has ended."""
    return InvalidArgumentError(
        "this iterator has ended, because the loader was iterated again and a reader has only one position. Finish "
        "one loop before the next, or open a reader for each"
    )


class DeliveredBatches:
    """Number of batches that a framework received, and the reader position after each.

    Only the last 65,536 positions (cursors) are stored. Thread-safe. Training must receive all batches of an iteration
    before the first batch of the next iteration.

    Example:
        >>> delivered = DeliveredBatches()
        >>> for epoch in (0, 1):
        ...     number = delivered.begin_pass()
        ...     for cursor in (Cursor(epoch, 10), Cursor(epoch + 1, 0)):
        ...         delivered.note(number, cursor)
        >>> delivered.count, delivered.cursor_after(3), delivered.cursor_after(2, in_pass=True)
        (4, Cursor(epoch=1, position=10, first_epoch=0), Cursor(epoch=2, position=0, first_epoch=0))
    """

    def __init__(self) -> None:
        self._lock = forks.Lock()
        self._cursors: collections.deque[Cursor] = collections.deque(maxlen=_REMEMBERED)
        self.count = 0
        """Number of batches delivered since counting began."""
        self._before = self._pass = 0  # batches before the newest iteration, and its number

    def begin(self) -> None:
        """Reset the count to 0, and stop counting batches of the running iterations."""
        with self._lock:
            self._cursors.clear()
            self.count = self._before = 0
            self._pass += 1

    def begin_pass(self) -> int:
        """Begin to count an iteration over the reader; return its number, for `note`."""
        with self._lock:
            self._before, self._pass = self.count, self._pass + 1
            return self._pass

    def note(self, number: int, cursor: Cursor) -> None:
        """Count a received batch of an iteration, and record the reader position after it.

        Do nothing if an iteration with a higher number has begun.
        """
        with self._lock:
            if number == self._pass:
                self._cursors.append(cursor)
                self.count += 1

    def cursor_after(self, batches: int, *, in_pass: bool = False) -> Cursor:
        """Return the reader position after a number of received batches.

        Args:
            batches: Number of batches since `begin`, or with `in_pass` since the newest iteration began.
            in_pass: Whether to count only batches of the newest iteration.

        Raises:
            InvalidArgumentError: Fewer batches were delivered, or the cursor was dropped after 65,536 further batches.
        """
        with self._lock:
            before = self._before if in_pass else 0
            oldest, newest = max(self.count - len(self._cursors), before) + 1, self.count
            if oldest <= before + batches <= newest:
                return self._cursors[before + batches - newest - 1]
        known = (
            f"from {oldest - before:,} to {newest - before:,}, the batches of this iteration, got {batches:,}"
            if newest > before
            else f"a number of delivered batches, but this iteration has delivered none, got {batches:,}"
        )
        raise InvalidArgumentError(
            f"batches must be {known}. Pass the number of batches that training has received since the iteration began"
        )


_of_readers: weakref.WeakKeyDictionary[Any, DeliveredBatches] = weakref.WeakKeyDictionary()
"""Record of the delivered batches of each reader; all adapters over a reader share it."""


def delivered_of(reader: Any) -> DeliveredBatches:
    """Return the record of a reader's delivered batches; each reader has one."""
    return _of_readers.setdefault(reader, DeliveredBatches())


def resumed_in(loaded: Cursor, epoch: int) -> Cursor | None:
    """Return the position from which a loaded state resumes in an epoch.

    Return None if the state belongs to another epoch.

    Example:
        >>> resumed_in(Cursor(4, 17, 2), 4), resumed_in(Cursor(4, 17, 2), 3)
        (Cursor(epoch=4, position=17, first_epoch=4), None)
    """
    return dataclasses.replace(loaded, first_epoch=epoch) if epoch in (loaded.epoch, loaded.first_epoch) else None


class EpochNumbers:
    """Conversion of `set_epoch` arguments to epochs of the data.

    Without a loaded state, the argument is the epoch. After a state was loaded, the argument may also count from 0, as
    in Lightning Fabric: 0 then means the epoch of the state, and 1 the epoch after it. Any other number gives a
    warning; the loop resumes from the state, and later numbers count from its epoch. There is one exception: if the
    state was saved before the first row of an iteration, any number above 0 is the epoch itself.

    Example:
        >>> numbers = EpochNumbers()
        >>> numbers.meant(0, loaded=Cursor(2, 40, 2)), numbers.meant(1), numbers.meant(2)
        (2, 3, 4)
        >>> numbers.meant(5, loaded=Cursor(5, 7, 5)), numbers.meant(6)
        (5, 6)
    """

    def __init__(self) -> None:
        self._ahead = 0  # epoch of the data minus the number passed to `set_epoch`; changes when a state is loaded

    def meant(self, number: int, loaded: Cursor | None = None, *, given: int = 0, settles: bool = True) -> int:
        """Return the epoch of the data for an argument of `set_epoch`.

        Args:
            number: The argument, from 0.
            loaded: Position in a loaded state, if no loop has resumed from it yet; otherwise None.
            given: Whether rows of the epoch were consumed before the state was saved: a bool, or the number of batches
                that were received after `loaded`.
            settles: Whether later arguments count from this one. If False, no warning is issued.

        Warns:
            UserWarning: The number is neither 0 nor that of the state's epoch, and the state was saved after the first
                row of an iteration.
        """
        if loaded is None:
            return number + self._ahead
        due = loaded.first_epoch
        # A state at the start of an iteration has no consumed rows, so another epoch may begin without skipping rows.
        is_at_a_beginning = loaded == loaded.next_pass() and not given
        fits = number in (due, loaded.epoch) or (is_at_a_beginning and number > 0)
        ahead = 0 if fits else due - number
        if settles:
            self._ahead = ahead
        if settles and number and not fits:
            warnings.warn(
                f"set_epoch({number}) was called after a state of epoch {due} was loaded. This loop resumes in epoch "
                f"{due}, and set_epoch({number + 1}) before the next loop will begin epoch {due + 1}. To count as the "
                f"state does, call set_epoch({due}) instead of set_epoch({number}) after loading; to begin epoch "
                f"{number}, do not load the state",
                UserWarning,
                stacklevel=frames_inside_petastore() + 1,
            )
        return number + ahead
