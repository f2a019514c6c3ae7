"""Passes over a reader, one at a time: what a loader does each time somebody iterates it, and where training stands."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from typing import Any

# Frameworks take seconds to import. What a first batch of text needs of Arrow is imported with them, not in a worker.
import pyarrow.compute  # noqa: F401

from petastore.adapters.received import Received
from petastore.adapters.told_epochs import ToldEpochs, going_on
from petastore.errors import InvalidArgumentError, ReaderClosedError
from petastore.forks import made_anew_in_children
from petastore.plan.cursor import Cursor
from petastore.plan.request import whole_number
from petastore.plan.state import dump_state
from petastore.readers.batch import Batch
from petastore.readers.execution.handouts import RaisesAfterErrors
from petastore.readers.reader import MOVED

__all__ = ["Passes"]


class Passes:
    """Starts passes over one reader; the newest pass is the only one that goes on.

    A pass is all epochs of the reader. The first one goes on from where the reader stands, and so does the one after
    `load_state_dict` or `reshard`, whatever epoch was told (`ToldEpochs` says what the number means then); each other
    one begins before the first row, of the epoch that `set_epoch` was told or else of the next one. A reader has one
    place at a time, so a pass that is started while another is under way takes the reader over, and the older one says
    so when somebody asks it for more. Which iterator was forgotten and which is still wanted cannot be known earlier:
    one that a `break` left behind looks just the same.

    What training has received is nearly always what the reader gave; it is `Received` where a batch is on its way
    while training has the one before.

    Passes may be started and continued from any threads.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.make_anew()
        self._newest = 0
        self._plan: Any = None  # of the newest pass; whoever moves a reader on purpose gives it another one
        self._received = Received(keep=2)  # of the newest pass, where each batch is begun while training has another
        self._had = 0  # batches of it that training has
        self._begun = Cursor()  # where it began
        self._epoch: int | None = None  # that the next pass was told to begin with
        self._epochs = ToldEpochs()
        made_anew_in_children(self)

    def make_anew(self) -> None:
        """No thread is in the reader: those are the parent's."""
        self._lock = threading.Lock()

    def start(self, batch_size: int) -> Iterator[Batch]:
        """The batches of a new pass; the pass begins with the first `next`.

        Raises:
            InvalidArgumentError: By `next`: a newer pass has taken the reader over.
            ReaderClosedError: By `next`: a state was loaded, or an error was raised before.
        """
        return RaisesAfterErrors(self._batches(batch_size))

    def _batches(self, batch_size: int) -> Iterator[Batch]:
        with self._lock:
            self._newest += 1
            ours = self._newest
            self._begin_pass()
            batches = iter(self._reader.iter_batches(batch_size))
        while True:
            with self._lock:
                if ours != self._newest:
                    raise _taken_over()
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def start_ahead(self, batch_size: int, begin: Callable[[Batch], Callable[[], Any]]) -> Iterator[Any]:
        """What is made of the batches of a new pass, each of them begun while training has the one before.

        An error in the batch that is on its way is raised when that batch is asked for, after the one before it.

        Args:
            batch_size: Rows of a batch.
            begin: Begins to make something of a batch; what it returns finishes that.

        Raises:
            InvalidArgumentError: By `next`: a newer pass has taken the reader over.
            ReaderClosedError: By `next`: a state was loaded, or an error was raised before.
        """
        return RaisesAfterErrors(self._made_ahead(batch_size, begin))

    def _made_ahead(self, batch_size: int, begin: Callable[[Batch], Callable[[], Any]]) -> Iterator[Any]:
        batches = self.start(batch_size)
        following = self._begin_next(batches, begin)
        ours, plan = self._newest, self._reader.plan
        while following is not None:
            batch, following = following, None
            if batch.problem is None:
                following = self._begin_next(batches, begin)
            if self._newest != ours:
                raise _taken_over()
            if self._reader.plan is not plan:
                raise ReaderClosedError(MOVED)
            if batch.problem is not None:
                raise batch.problem
            made = batch.finish()
            self._had += 1
            del batch
            yield made
            del made

    def steps(self, batch_size: int) -> int | None:
        """Return the number of batches of the pass under way, or of the next one; None where passes are endless.

        A pass that continues where a state was loaded has the batches that are left.
        """
        reader = self._reader
        with self._lock:
            begin = self._begun if reader.plan is self._plan and not self.is_over else self._resumed_at()
        steps: int | None = reader.plan.steps_left(batch_size, Cursor() if begin is None else begin)
        return steps

    def _resumed_at(self) -> Cursor | None:
        """Return where the next pass continues; None where it begins an epoch."""
        reader = self._reader
        if self._epoch is not None:
            loaded = self._loaded_place()
            if loaded is None or loaded == loaded.next_pass():
                return None
            fits = self._epoch in (loaded.epoch, loaded.first_epoch)
            return going_on(loaded, self._epoch if fits else loaded.first_epoch)
        is_at_an_end = self._behind is not None or reader.plan is self._plan or reader.last_row_consumed
        return None if is_at_an_end else reader.cursor

    def set_epoch(self, epoch: int) -> None:
        """The next pass begins with this epoch, whatever came before; or goes on where a state was loaded.

        Raises:
            InvalidArgumentError: It is no number of an epoch; or a pass is several epochs, which whoever counts them
                takes for one.
        """
        epoch = whole_number(epoch, name="epoch", least=0)
        if self._reader.num_epochs not in (1, None):
            raise InvalidArgumentError(
                f"set_epoch({epoch}) cannot be: whoever calls it counts epochs, and takes the "
                f"{self._reader.num_epochs} epochs that this reader gives in one for to be one; write "
                "make_reader(…, num_epochs=1), and let the trainer go through them (max_epochs of Lightning)"
            )
        with self._lock:
            self._epoch = epoch

    @property
    def is_over(self) -> bool:
        """Whether training has received the last batch of a pass."""
        return (self._behind or self._reader.cursor).is_at_end(self._reader.num_epochs)

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: after the last batch that it received."""
        behind = self._behind
        state: dict[str, Any] = self._reader.state_dict() if behind is None else dump_state(self._plan, behind)
        return state

    def _begin_pass(self) -> None:
        """Puts the reader where a pass begins."""
        reader, epoch = self._reader, self._epoch
        self._epoch = None
        if epoch is not None:
            self._begin_epoch(epoch)
        elif self._behind is not None:  # the pass after the one that was left, and not after what was on its way
            reader.load_state_dict(self.state_dict())
            reader.reset()
        elif reader.plan is self._plan or reader.last_row_consumed:
            reader.reset()
        self._plan, self._had, self._begun = reader.plan, 0, reader.cursor
        self._received.begin()

    def _begin_epoch(self, told: int) -> None:
        """Puts the reader before an epoch, unless somebody has put it to another place on purpose: it goes on there."""
        reader, loaded = self._reader, self._loaded_place()
        epoch = self._epochs.meant(told, loaded)
        begin = (loaded and going_on(loaded, epoch)) or Cursor.of_epoch(epoch)
        if begin != reader.cursor or reader.last_row_consumed:
            reader.load_state_dict(dump_state(reader.plan, begin))

    def _loaded_place(self) -> Cursor | None:
        """Return where a state was loaded that no pass has continued from; None where there is no such state."""
        reader = self._reader
        # Another loader may have read from it: only a state that was loaded, or `reshard`, counts.
        is_put = reader.plan is not self._plan and reader.cursor == reader.begin
        return reader.cursor if is_put and not reader.last_row_consumed else None

    @property
    def _behind(self) -> Cursor | None:
        """Where training stands, if that is not where the reader does, and nobody has moved the reader since."""
        received, had, reader = self._received, self._had, self._reader
        if not had or had == received.count or reader.plan is not self._plan:
            return None
        return received.cursor_after(had) if reader.cursor == received.cursor_after(received.count) else None

    def _begin_next(self, batches: Iterator[Batch], begin: Callable[[Batch], Callable[[], Any]]) -> _Begun | None:
        """What is made of the next batch; None at the end."""
        try:
            batch = next(batches, None)
            if batch is None:
                return None
            self._received.note(batch.cursor)
            return _Begun(begin(batch))
        except Exception as problem:  # noqa: BLE001 (whatever it is, it belongs to that batch, and is raised there)
            return _Begun(lambda: None, problem)


@dataclasses.dataclass(frozen=True, slots=True)
class _Begun:
    """What is being made of a batch."""

    finish: Callable[[], Any]
    problem: Exception | None = None
    """Why nothing is."""


def _taken_over() -> InvalidArgumentError:
    """The error of an iterator whose reader a newer pass has taken over."""
    return InvalidArgumentError(
        "this iterator has ended because the loader was iterated again, and a reader has one place at a time; finish "
        "one loop before the next, or make a reader for each"
    )
