"""Reports of a reader: the diagnosis of its current iteration, its counters, and its progress bar."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Sequence
from typing import Any

from petastore.monitoring.activity import STAGES, Segment
from petastore.monitoring.diagnosis import Counters, Diagnosis, diagnose
from petastore.monitoring.progress import ProgressDisplay
from petastore.monitoring.waits import WaitMeter
from petastore.plan import Cursor, Shard
from petastore.plan.rank_plan import RankPlan
from petastore.readers.execution.execution import Execution, counts_of
from petastore.readers.read_pass import Pass
from petastore.work.pools import Workers, available_cpus

__all__ = ["Monitored"]


_IN_DIAGNOSTICS = (
    "wait_seconds",
    *(f"wait_{stage}_seconds" for stage in STAGES),
    "startup_seconds",
    "elapsed_seconds",
    "ready_spans_mean",
)
"""Names of the fields of `Counters` that `Reader.diagnostics` includes."""


class Monitored:
    """Base class of readers with the reports of a reader: diagnosis, diagnostics and progress of its iterations."""

    plan: RankPlan
    shard: Shard
    begin: Cursor
    workers: Workers
    meter: WaitMeter
    """Counters of the current iteration, for loaders that add the time of their own stages."""

    _execution: Execution
    _pass: Pass
    _progress: _ReaderProgress | None = None

    def show_progress(self) -> None:
        """Show rows, rate, share of stalls and remaining time of all iterations on standard error, on rank 0 only.

        On a terminal, this is a progress bar if rich is installed (extra `cli`); otherwise a line every 10 seconds.
        """
        if self.shard.index == 0 and self._progress is None:
            self._progress = _ReaderProgress(self)
            self.meter.listeners.append(self._progress)

    def _end_progress(self) -> None:
        """Close the progress bar, if there is one."""
        if self._progress is not None:
            self._progress.close()

    def diagnosis(self) -> Diagnosis:
        """Return whether the input is the bottleneck, in which stage, and what to change. Print it. Thread-safe.

        The diagnosis is about the current or last iteration, without the wait for its first batch. Measure over an
        epoch, or at least some seconds.

        Example:
            >>> import tempfile, petastore
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     _ = petastore.write_dataset(folder + "/ids", {"id": list(range(100))})
            ...     with petastore.make_reader(folder + "/ids") as reader:
            ...         rows = list(reader)
            >>> found = reader.diagnosis()
            >>> found.counters.rows, 0 <= found.wait_share <= 1
            (100, True)
        """
        return diagnose(self._counters())

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Counters of `diagnosis`, and counters of storage and caches, as a new JSON-serializable dict. Thread-safe.

        `wait_seconds` is the time that this iteration has waited for rows; near 0, reading is faster than training.
        `wait_storage_seconds`, `wait_decoding_seconds`, `wait_transform_seconds`, `wait_assembly_seconds` and
        `wait_copy_seconds` divide it by stage, `startup_seconds` is the wait for the first batch, and
        `elapsed_seconds` the time since then: the fields of `petastore.monitoring.diagnosis.Counters`.
        `ready_spans_mean` is the mean occupancy of the output queue, and `workers` the number of concurrent tasks.

        For remote files, counted in this process after opening: `storage_requests` (requests for column chunks,
        including failed ones), `storage_retries`, `storage_corrupt` (row groups and footers that arrived corrupt and
        were fetched again) and `storage_bytes`. With a local disk cache: `cache_hits`, `cache_misses`, `cache_corrupt`
        and `cache_bypassed` count column chunks; `cache_bytes_read`, `cache_bytes_written` and `cache_bytes_evicted`
        count bytes; `footer_hits`, `footer_misses` and `footer_corrupt` count footers. Readers of the same `Dataset`
        share these counters.

        `bad_rows` and `excluded_rows` are the numbers of rows that `on_error` and `exclude_rows` leave out, if any.

        Petastorm's keys count work items (groups of consecutive batches that are assembled together): `items_produced`
        (finished), `items_consumed` (returned), `output_queue_size` (finished, not yet returned) and `items_inprocess`
        (in progress).
        """
        counters = self._counters()
        seconds = {name: getattr(counters, name) for name in _IN_DIAGNOSTICS}
        # The wait for the first batch is added, because users compare `wait_seconds` with the duration of their loop.
        seconds["wait_seconds"] += counters.startup_seconds
        counts = counts_of(self._execution.source.datasets) | _left_out(self.plan)
        return {**seconds, "workers": counters.workers, **self._pass.spans, **counts}

    def _counters(self) -> Counters:
        """Return the counters of the current iteration, and the settings on which the suggested changes depend."""
        execution, workers, shard = self._execution, self.workers, self.shard
        datasets = execution.source.datasets
        return dataclasses.replace(
            self.meter.counters(),
            rows_selected=0 if execution.windows is not None else self.plan.num_rows,
            rows_of_dataset=self.plan.inventory.num_rows,
            workers=workers.at_a_time,
            pool=workers.kind,
            cpus=available_cpus(),
            memory_budget=workers.memory_budget,
            is_remote=any(dataset.is_fetched for dataset in datasets),
            is_cached=any(dataset.kept.cache is not None for dataset in datasets),
            rank=shard.index,
            ranks=shard.count,
        )

    def _repr_html_(self) -> str:
        from petastore.notebook import html_table

        metrics = self.diagnostics
        of_plan = getattr(self.plan, "_repr_html_", lambda: "")()  # the plan of a mixture does not have this method
        return of_plan + html_table(f"Reader of {self._execution.source.url}", [], metrics.items(), count=len(metrics))


def _left_out(plan: RankPlan) -> dict[str, int]:
    """Return the numbers of bad rows and of excluded rows, over all sources."""
    counts: dict[str, int] = {}
    for source in plan.sources:
        for step in () if source.selection is None else source.selection.pruned:
            if step.by in ("bad rows", "excluded rows"):
                name = step.by.replace(" ", "_")
                counts[name] = counts.get(name, 0) + step.rows
    return counts


class _ReaderProgress:
    """Listener of a reader's wait meters that shows the progress of each iteration."""

    def __init__(self, reader: Monitored) -> None:
        self._reader = weakref.ref(reader)
        self._display: ProgressDisplay | None = None
        self._meter: WaitMeter | None = None

    def __call__(self, meter: WaitMeter, segments: Sequence[Segment], began: float, ended: float) -> None:  # noqa: ARG002
        """Show the progress after a wait; called by the consumer's thread."""
        if meter is not self._meter or self._display is None:
            self.close()
            reader = self._reader()
            rows_left = None if reader is None else reader.plan.steps_left(1, reader.begin)
            self._meter, self._display = meter, ProgressDisplay("reading", "rows", rows_left)
        if meter.is_over or self._display.is_due:
            share = diagnose(meter.counters()).wait_share
            self._display.update(meter.rows, note=f"waited {share * 100:.0f} % of the time")
        if meter.is_over:
            self._display.close()

    def close(self) -> None:
        """Remove the display. May be called again."""
        if self._display is not None:
            self._display.close()
