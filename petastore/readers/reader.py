"""Reader: iterates over the rows or batches of a plan, and saves and restores its position."""

from __future__ import annotations

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from petastore.errors import ReaderClosedError
from petastore.plan import Cursor, Shard
from petastore.plan.rank_plan import RankPlan
from petastore.plan.state import dump_state, resharded, resume
from petastore.readers.batch import Batch
from petastore.readers.execution.building import Build, Readable, build_execution
from petastore.readers.execution.handouts import Shared, never_pickled, none_by_number
from petastore.readers.execution.memory_budget import Budget, budget_of, pace_of
from petastore.readers.monitored import Monitored
from petastore.readers.read_pass import STOPPED, Pass, Position
from petastore.schema.unischema import Row
from petastore.work.pools import Workers

if TYPE_CHECKING:
    from petastore.transforming.transform import AnyTransform, TransformSpec

__all__ = ["MOVED", "Reader"]

MOVED = (
    "this iterator has ended, because load_state_dict, reset or reshard of its reader was called. Start a new loop, "
    "which continues at the reader's position"
)
"""Error message of an iterator whose reader has changed its position."""


class Reader(Monitored, contextlib.AbstractContextManager["Reader", None]):
    """Reader of a dataset: an iterator of rows, or of batches of columns; `make_reader` and other functions open it.

    One iteration covers all epochs. `iter_batches(n)` yields batches of n rows, as loaders do. Workers start with the
    first `next`.

    Several threads may share one iterator of `iter_batches`, or call `next` of one reader: each batch or row goes to
    exactly one thread. A loop that begins after the last row starts the next iteration, in any thread. Any thread may
    call `stop`. A forked child process cannot continue the current iteration: call `reset` there, or open another
    reader.

    Args:
        dataset: The dataset to read.
        plan: The plan: rows and their order.
        workers: Number and kind of workers; the row order does not depend on them.
        transform: A function of rows, or of DataFrames if `batched`; or a `TransformSpec`.
        batched: Whether iteration yields batches of columns instead of rows.
        build: Factory of the execution (the objects that run the plan) of a reader of rows (the default), windows or
            mixtures.

    Raises:
        InvalidArgumentError: The transform does not match the schema, a field is named `valid` although
            `last_batch="pad"` adds that column, or values of a field exceed `Workers.max_cell_bytes`.
        NoDataAvailableError: The plan has fewer rows than ranks, with `last_batch="even"`.
    """

    def __init__(
        self,
        dataset: Readable,
        plan: RankPlan,
        *,
        workers: Workers,
        transform: AnyTransform | None = None,
        batched: bool = False,
        build: Build = build_execution,
    ) -> None:
        spec: TransformSpec | None = None
        if transform is not None:
            from petastore.transforming.transform import as_transform_spec  # imported here: few readers need it

            spec = as_transform_spec(transform)
        execution = build(dataset, plan, workers=workers, transform=spec, batched=batched)
        execution.refuse_what_cannot_be()
        self.dataset = execution.source
        """The dataset that is read."""
        self.workers = workers
        """Number and kind of workers."""
        self.transform = execution.transform
        """The transform as a `TransformSpec`; None without one, or if the sources of a mixture have different ones."""
        self.schema = execution.schema
        """The fields of the output, after column selection and transform."""
        self.batched_output = self.is_batched_reader = batched
        """Whether iteration yields batches of columns instead of rows. `is_batched_reader` is an alias, as in
        Petastorm."""
        self.num_epochs = plan.request.epochs
        """Number of epochs in one iteration; None means endless."""
        self.rows_per_batch = execution.rows_per_item
        """Rows (or windows) per `next`: 1; for a batch reader, the rows of the largest row group, at most 65,536."""
        self.windows = execution.windows
        """The rows of each window, if this reader yields windows; otherwise None."""
        self.ngram = execution.ngram
        """The `NGram`, if this reader yields windows; otherwise None."""
        self.row_schema = execution.row_schema
        """The fields of single rows: `schema`; for windows, all fields of all offsets."""
        self.provenance = execution.provenance
        """Whether `provenance=True` added its columns to `schema`."""
        self.stacked_columns = execution.stacked_columns
        """Names of columns that share one array in `Batch.source` if no value is missing: one tuple for each array."""
        self.stopped = False
        """Whether `stop` was called."""
        self.plan = plan
        """The plan: rows, ranks and order."""
        self.shard = plan.request.shard
        """The shard that this reader reads."""
        self._execution = execution
        self.begin = Cursor()
        """Position at which the current iteration began: before the first row, or that of a loaded state."""
        self._pass = Pass(execution, self.begin)
        self.meter = self._pass.meter
        self._own = self._pass.items()  # the iterator behind `next(reader)`

    @property
    def cursor(self) -> Cursor:
        """Position after the last row or batch returned; the same on every rank."""
        return self._pass.cursor

    @property
    def last_row_consumed(self) -> bool:
        """Whether iteration has reached the end of the last epoch."""
        return self._pass.is_over

    @property
    def num_rows(self) -> int:
        """Number of rows per epoch on this rank, known before the first read."""
        return self.plan.rows_per_epoch(self.rows_per_batch)

    def steps_per_epoch(self, batch_size: int) -> int:
        """Return the number of batches per epoch: the same on every rank, and known before the first read."""
        return self.plan.steps_per_epoch(batch_size)

    def __len__(self) -> int:
        """Return the number of rows of one iteration; for a batch reader, the number of batches.

        Raises:
            TypeError: The reader is endless.
        """
        if self.num_epochs is None:
            raise TypeError(
                "a reader with num_epochs=None is endless and has no length. Use steps_per_epoch(batch_size) for "
                "the length of an epoch"
            )
        each = self.steps_per_epoch(self.rows_per_batch) if self.batched_output else self.num_rows
        return each * self.num_epochs

    def __bool__(self) -> bool:
        return True  # otherwise `__len__` would make a reader without rows false

    # `reader[0]` raises an error: otherwise torch's own DataLoader would use the reader as a map-style dataset.
    __getitem__ = none_by_number

    __reduce__ = never_pickled

    def iter_batches(self, batch_size: int) -> Iterator[Batch]:
        """Iterate over batches of `batch_size` rows, from the current position, through all remaining epochs.

        You may leave the loop early. Call `reset()` before you iterate again from the first row.

        Args:
            batch_size: Rows per batch; the size of an epoch's last batch depends on `last_batch`.

        Raises:
            ReaderClosedError: The reader was closed.
            InvalidArgumentError: `batch_size` is not an int above 0, or `memory_budget` is too small for such batches.
            NoDataAvailableError: There are fewer rows than ranks, with `last_batch="even"`.
            DecodeError: A cell cannot be decoded.
            TransformError: The transform function raised, or returned an invalid result.
        """
        self.plan.steps_per_epoch(batch_size)
        pace_of(self._execution, batch_size)
        self._own = self._pass.items()  # `next(reader)` continues after these batches

        # `self._pass` is read at the first batch, because `reset` or `load_state_dict` may replace it until then.
        return Shared(lambda iterator: self._pass.batches(batch_size, iterator))

    def estimate_memory(self, batch_size: int) -> Budget:
        """Return an estimate of peak memory and prefetching for batches of this size.

        Print the result to see a summary.

        The number of row groups in memory is exact for the first epoch; later epochs may need slightly more. Batches
        that the caller keeps are not counted, except the last two.

        Raises:
            InvalidArgumentError: `memory_budget` is too small for batches of this size.
        """
        return budget_of(self._execution, batch_size)

    def __iter__(self) -> Self:
        """Return the reader itself.

        A loop continues where the previous loop stopped; after the last row, a new iteration starts.
        """
        this = self._pass
        if this.is_over:
            with this.beginning:
                if this is self._pass and not self.stopped:
                    self.reset()
        return self

    def __next__(self) -> Row:
        """Return the next row as a named tuple, or the next batch as a named tuple of columns.

        Raises:
            StopIteration: All epochs were read.
            ReaderClosedError: The reader was stopped, or this loop already raised an error.
        """
        item: Row
        own = self._own
        try:
            for item in own.at_hand:  # no lock is needed, because the iterator is implemented in C
                return item
            return own.next_of_next()
        except StopIteration:
            raise
        except BaseException as problem:
            own.fail(problem)
            raise

    next = __next__  # Petastorm's spelling

    def reset(self) -> None:
        """Start a new iteration at the first row. May be called at any time.

        Epoch numbers increase from iteration to iteration, so shuffled rows get a new order. To repeat an order, save a
        state before the first row and load it.

        Raises:
            ReaderClosedError: The reader was closed.
        """
        self.replan(self.plan, self.plan.next_pass(self.cursor))

    def state_dict(self) -> dict[str, Any]:
        """Return the position as a new JSON-serializable dict; it is the same on every rank.

        As JSON, the dict has less than 400 bytes, and about 60 more for each source of a mixture. The position is after
        the last row that the reader returned, not after the last prefetched row.
        """
        return dump_state(self.plan, self.cursor)

    def position(self, batch_size: int | None = None) -> Position:
        """Return the next step, and the most recently read rows by file, row group and row. Reads no data.

        As in `state_dict`, rows count as read when this reader has returned them. A loader may have prefetched some of
        these rows.

        Args:
            batch_size: Rows per batch, to count steps. None means the size of the last batch; before the first batch,
                the size that `next(reader)` uses.
        """
        return self._pass.position(batch_size)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a state of `state_dict`: the next row or batch is the one after the saved position.

        Workers, pool type, batch size, `last_batch` and the numbers of ranks and epochs may differ from the saved run.
        Each remaining row is then read exactly once.

        Raises:
            InvalidArgumentError: The state is invalid, or was saved with another dataset or row order; the message
                names the difference.
            ReaderClosedError: The reader was closed.
        """
        self.replan(*resume(self.plan, state))

    def reshard(self, cur_shard: int, shard_count: int) -> None:
        """Continue as another rank or with another number of ranks. Call it on every rank after the same step.

        Ranks do not communicate: after the same step, all ranks have the same position, and divide the remaining rows
        from this position.

        Raises:
            InvalidArgumentError: The shard is invalid.
            ReaderClosedError: The reader was closed.
        """
        self.replan(resharded(self.plan, Shard(cur_shard, shard_count), self.cursor), self.cursor)

    def replan(self, plan: RankPlan, begin: Cursor) -> None:
        """Start a new iteration with another plan for the same rows, such as another order.

        Args:
            plan: The new plan.
            begin: Position in the new plan at which the iteration begins.

        Raises:
            ReaderClosedError: The reader was closed.
        """
        if self.stopped:
            raise ReaderClosedError(STOPPED)
        if not self._pass.is_over:  # otherwise, threads that wait for the end get the end
            # Close first: then `next()` in another thread raises an error, and does not start a new pipeline.
            self._pass.close(MOVED)
        self._pass.end()
        self.plan, self.shard, self.begin = plan, plan.request.shard, begin
        self._execution = dataclasses.replace(self._execution, plan=plan)
        self._pass = Pass(self._execution, begin, self.meter)
        self.meter = self._pass.meter
        self._own = self._pass.items()
        if self.stopped:  # the reader was stopped in the meantime, but `stop` only closed the previous pass
            self._pass.close()

    def stop(self) -> None:
        """Stop reading. A thread that waits in `next` gets `ReaderClosedError`. Any thread may call it, repeatedly."""
        self.stopped = True
        self._pass.close()
        self._execution.close()
        self._end_progress()

    def join(self) -> None:
        """Wait until all workers have ended, after `stop`, and free memory. May be called repeatedly."""
        try:
            self._pass.end()
        finally:  # `end` may raise the warning about an abandoned thread as an error
            if self.stopped:
                self._pass.let_go()
                self._execution.join()

    def close(self) -> None:
        """Stop reading and wait for the workers, as at the end of a `with` block. May be called repeatedly."""
        self.stop()
        self.join()

    def cleanup_cache(self) -> None:
        """Do nothing. The method exists for Petastorm's callers; other readers may still use the cache."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self, _warn: Callable[..., None] = warnings.warn) -> None:
        # `warn` is bound as a default, because module globals may be gone at interpreter exit.
        this = getattr(self, "_pass", None)
        if this is not None and this.is_running:
            this.close()
            _warn(f"{self!r} was not stopped; use it in a `with` block", ResourceWarning, stacklevel=1, source=self)

    def __repr__(self) -> str:
        return f"Reader({self._execution})"
