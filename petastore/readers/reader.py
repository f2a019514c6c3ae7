"""The reader: a plan, run. What it runs, an `Execution`, is a value; here is only where it stands."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

from petastore.errors import NotPicklableError, ReaderClosedError
from petastore.plan import Cursor, Shard
from petastore.plan.batches.budget import Budget
from petastore.plan.state import dump_state, resharded, resume
from petastore.readers.batch import Batch
from petastore.readers.execution.execution import AnyPlan, Build, Readable
from petastore.readers.execution.handouts import Shared, none_by_number
from petastore.readers.execution.pacing import budget_of, pace_of
from petastore.readers.execution.row_execution import execution_of_rows
from petastore.readers.read_pass import STOPPED, Pass
from petastore.schema.row import Row
from petastore.work.workers import Workers

if TYPE_CHECKING:
    from petastore.transforming.transform import AnyTransform, TransformSpec

__all__ = ["MOVED", "Reader"]

MOVED = (
    "this iterator ended because load_state_dict, reset or reshard of its reader was called: begin a new loop, which "
    "continues where the reader stands now"
)
"""The message of an iterator whose reader was moved."""


class Reader(contextlib.AbstractContextManager["Reader", None]):
    """Runs a plan: iterates rows, or batches of columns.

    A reader is its own iterator, over all epochs of the plan. `iter_batches(n)` gives batches of n rows instead;
    adapters use only that. Reading begins with the first `next`; nothing runs before.

    Several threads may iterate one reader, or one iterator of `iter_batches`: each row goes to exactly one of them, and
    a thread whose loop begins when the others have taken all rows gets none. `stop` may be called from any thread. In a
    forked child the pass under way is over: `reset`, or open another reader.

    Args:
        dataset: Where the plan's row groups are.
        plan: What is read, in what order.
        workers: Who does the work; the order does not depend on it.
        transform: A function for rows, or for DataFrames where `batched`; or its TransformSpec.
        batched: Whether iteration gives column batches, or else rows.
        build: Makes of all this what is run; of rows as they are, unless windows or a mixture are read.

    Raises:
        InvalidArgumentError: The transform, or the column `valid` of `last_batch="pad"`, contradicts the schema; or
            values of a field are larger than `Workers.max_cell_bytes`.
        NoDataAvailableError: `last_batch="even"` with fewer rows than shards.
    """

    def __init__(
        self,
        dataset: Readable,
        plan: AnyPlan,
        *,
        workers: Workers,
        transform: AnyTransform | None = None,
        batched: bool = False,
        build: Build = execution_of_rows,
    ) -> None:
        spec: TransformSpec | None = None
        if transform is not None:
            from petastore.transforming.transform import as_transform_spec  # a reader without one need not import it

            spec = as_transform_spec(transform)
        execution = build(dataset, plan, workers=workers, transform=spec, batched=batched)
        execution.refuse_what_cannot_be()
        self.dataset = execution.source
        """The dataset that is read."""
        self.workers = workers
        """Who does the work."""
        self.transform = execution.transform
        """The function that makes rows of what is stored; None leaves them as they are."""
        self.schema = execution.assembly.schema
        """What comes out: the fields after selection and transform."""
        self.batched_output = self.is_batched_reader = batched
        """Whether iteration gives column batches, or else rows; by two names, as in Petastorm."""
        self.num_epochs = plan.request.epochs
        """Epochs of one iteration; None is without end."""
        self.rows_per_batch = execution.handing_out.rows
        """Rows of what one `next` gives: 1, or in a batched reader those of the largest row group, at most 65,536."""
        self.windows = None if execution.windows is None else execution.windows.windows
        """Which rows each window covers, where rows of this reader are windows."""
        self.ngram = None if execution.windows is None else execution.windows.ngram
        """What a window is, where rows of this reader are windows."""
        self.row_schema = self.schema if execution.windows is None else execution.windows.row_schema
        """What rows are: `schema`; of windows, what they are made of, all fields of all offsets."""
        self.stacked_columns = execution.assembly.stacked_columns
        """Names of columns that `Batch.source` has in one array too, where none of their values is missing."""
        self.stopped = False
        """Whether `stop` was called."""
        self.plan = plan
        """What is read, by whom and in what order."""
        self.shard = plan.request.shard
        """Which part of the dataset this reader gives."""
        self._execution = execution
        self.begin = Cursor()
        """Where the pass under way began: before a first row, or where a state has put it."""
        self._pass = Pass(execution, self.begin)
        self._own = self._pass.items()  # what iterating the reader gives
        self._asked_for: Callable[[], Shared[Batch] | None] = lambda: None

    @property
    def cursor(self) -> Cursor:
        """Where the reader stands: after the last row or batch that it gave; the same on every rank."""
        return self._pass.cursor

    @property
    def last_row_consumed(self) -> bool:
        """Whether iteration has come to the end of the last epoch."""
        return self._pass.is_over

    @property
    def num_rows(self) -> int:
        """Rows of an epoch of this reader, known before the first read."""
        return self.plan.rows_per_epoch(self.rows_per_batch)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Batches of an epoch: the same on every rank, known before the first read."""
        return self.plan.steps_per_epoch(batch_size)

    def __len__(self) -> int:
        """What one iteration gives: rows, or batches of a batched reader.

        Raises:
            TypeError: The reader is endless.
        """
        if self.num_epochs is None:
            raise TypeError(
                "a reader with num_epochs=None is endless; steps_per_epoch(batch_size) says what an epoch is"
            )
        each = self.steps_per_epoch(self.rows_per_batch) if self.batched_output else self.num_rows
        return each * self.num_epochs

    def __bool__(self) -> bool:
        return True  # a reader without rows is a reader all the same

    __getitem__ = none_by_number  # which torch's own DataLoader would ask a dataset for

    def iter_batches(self, batch_size: int) -> Iterator[Batch]:
        """Batches of this many rows, from where the reader stands, through all remaining epochs.

        Leaving early is fine: `reset()` and ask again.

        Args:
            batch_size: Rows of a batch; the last one of an epoch depends on `last_batch`.

        Raises:
            ReaderClosedError: After `stop`.
            InvalidArgumentError: `batch_size` is not a whole number above 0, or `memory_budget` is less than such
                batches need.
            NoDataAvailableError: `last_batch="even"` with fewer rows than shards.
            DecodeError: A cell is not what its field declares.
            TransformError: From the user's function.
        """
        self.plan.steps_per_epoch(batch_size)
        pace_of(self._execution, batch_size)
        self._own = self._pass.items()  # rows that are asked for later follow these batches

        # Of the pass that is under way when the first one is taken.
        batches: Shared[Batch] = Shared(lambda: self._pass.batches(batch_size))
        self._asked_for = weakref.ref(batches)  # who forgets them ends them
        return batches

    def estimate_memory(self, batch_size: int) -> Budget:
        """What reading batches of this size takes in memory at most, and how far ahead the reader works; print it.

        Row groups at hand are those of the first epoch, to the position; the order of another may keep a little more.
        The batches that the caller keeps are not counted, but for the last two.

        Raises:
            InvalidArgumentError: `memory_budget` is less than batches of this size need.
        """
        return budget_of(self._execution, batch_size)

    def __iter__(self) -> Self:
        """The reader itself: a loop goes on where the last one left; after the end, the next one begins again."""
        this = self._pass
        if this.is_over:
            with this.beginning:
                if this is self._pass and not self.stopped and not this.end_is_news:
                    self.reset()
        return self

    def __next__(self) -> Row:
        """The next row as a named tuple, or the next batch as a named tuple of columns.

        Raises:
            StopIteration: All epochs are done.
            ReaderClosedError: After `stop`, or after an error of this loop.
        """
        item: Row
        own = self._own
        try:
            for item in own.at_hand:  # an iterator written in C, which threads may enter at any time
                return item
            return own.next_of_next()
        except StopIteration:
            self._pass.tell_end()
            raise
        except BaseException as problem:
            own.fail(problem)
            raise

    next = __next__  # as Petastorm spells it

    def reset(self) -> None:
        """Begins a new pass before the first row, at any time.

        Epochs count on through passes, so that a shuffled pass has another order than the one before; to see the same
        order again, `load_state_dict` a state that was taken before the first row.

        Raises:
            ReaderClosedError: After `stop`.
        """
        self.replan(self.plan, self.cursor.next_pass())

    def state_dict(self) -> dict[str, Any]:
        """Where the reader stands, as a new dict of JSON values under 300 bytes; the same on every rank.

        It counts what was given out, not what was prefetched.
        """
        return dump_state(self.plan, self.cursor)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called: the next row or batch is the one that would have followed.

        Workers, pool, batch size, `last_batch`, number of ranks and epochs may differ from then: the rows that were not
        returned yet follow, none twice.

        Raises:
            InvalidArgumentError: The state is none, or of another dataset or order; the difference is named.
            ReaderClosedError: After `stop`.
        """
        self.replan(*resume(self.plan, state))

    def reshard(self, cur_shard: int, shard_count: int) -> None:
        """Goes on as another rank, or as one of another number of ranks; every rank calls it after the same step.

        Nothing is communicated: after the same steps all ranks stand at the same place, and share what is left anew.

        Raises:
            InvalidArgumentError: There is no such shard.
            ReaderClosedError: After `stop`.
        """
        self.replan(resharded(self.plan, Shard(cur_shard, shard_count), self.cursor), self.cursor)

    def replan(self, plan: AnyPlan, begin: Cursor) -> None:
        """Begins a pass of another plan of the same rows there, in place of the one under way.

        Raises:
            ReaderClosedError: After `stop`.
        """
        if self.stopped:
            raise ReaderClosedError(STOPPED)
        _end((self._own, self._asked_for()), MOVED)
        self._pass.close()  # whoever still asks it for rows must not begin it again
        self._pass.end()
        self.plan, self.shard, self.begin = plan, plan.request.shard, begin
        self._execution = self._execution.on(plan)
        self._pass = Pass(self._execution, begin)
        self._own = self._pass.items()
        if self.stopped:  # meanwhile: `stop` saw the pass before
            self._pass.close()

    def stop(self) -> None:
        """Ends reading; whoever waits in `next` wakes with `ReaderClosedError`. May be called again, by any thread."""
        self.stopped = True
        _end((self._own, self._asked_for()), STOPPED)
        self._pass.close()
        self._execution.close()

    def join(self) -> None:
        """Waits until no worker runs any more, after `stop`; gives memory back. May be called again."""
        try:
            self._pass.end()
        finally:  # also where a thread had to be left behind, and a warning of it is an error
            if self.stopped:
                self._pass.let_go()
                self._execution.join()

    def close(self) -> None:
        """Stop reading and wait for the workers, as leaving the `with` block does. May be called again."""
        self.stop()
        self.join()

    def cleanup_cache(self) -> None:
        """Does nothing: what other readers may use is not removed when one of them ends."""

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Whether reading keeps up, as a new dict of JSON values, at any time and from any thread.

        `waited_s` is for how many seconds this pass has waited for rows: near 0 where reading is ahead of training.
        `workers` is how many tasks run at a time. Of files elsewhere, `storage_requests` counts requests for column
        chunks, those that failed too, `storage_again` those that had to be made again, `storage_damaged` row groups
        and footers that came damaged and were fetched once more, and `storage_bytes` the bytes that came, in this
        process; opening the dataset is not counted. With a local disk cache, `cache_hits`,
        `cache_misses`, `cache_damaged` and `cache_bypassed` count column chunks, and `cache_bytes_read`,
        `cache_bytes_written` and `cache_bytes_evicted` bytes; `footer_hits`, `footer_misses` and `footer_damaged` count
        footers, those of opening, too. Readers that share a dataset share all of these.

        Petastorm's keys are there for every kind of workers, and count spans, which are rows that are assembled
        together: `items_produced` is how many of them are done, `items_consumed` how many were handed over,
        `output_queue_size` how many wait for that, and `items_inprocess` how many are worked on.
        """
        counts = self._execution.counts()
        return {"waited_s": self._pass.waited_s, "workers": self.workers.at_a_time, **self._pass.spans, **counts}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        # Bound above: at the program's end, modules may be empty already.
        this = getattr(self, "_pass", None)
        if this is not None and this.is_running:
            this.close()
            _warn(f"{self!r} was not stopped; use it in a `with` block", ResourceWarning, stacklevel=1, source=self)

    def __reduce__(self) -> NoReturn:
        raise NotPicklableError(
            f"{self!r} has threads and open files, and cannot be pickled: for hvd.elastic.TorchState wrap it in "
            "petastore.adapters.horovod.ElasticDataLoader; for worker processes of torch's DataLoader take "
            "petastore.adapters.torch.ReaderDataset; to another process send the arguments, and call make_reader "
            "there. Its place is reader.state_dict(), a small dict"
        )

    def __repr__(self) -> str:
        return f"Reader({self._execution})"


def _end(iterators: Iterable[Any], why: str) -> None:
    """Make running iterators raise `ReaderClosedError`; None stands for an iterator that ended."""
    for iterator in iterators:
        if iterator is not None:
            iterator.end(why)
