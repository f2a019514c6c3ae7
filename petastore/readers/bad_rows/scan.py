"""Scan for bad rows (`on_error="skip"`, `"quarantine"`): decode and transform all selected rows once, in parallel.

The result is a `Selection` without the bad rows, which the plan divides among ranks. As with a filter, batches are
therefore full, ranks take equal steps, and each good row is read exactly once. Ranks that start at the same time scan
independently and get the same result. Like the result of a filter, the result is cached for these versions of the
files.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.dataset import Dataset
from petastore.decoding.buffers import Buffers
from petastore.decoding.decode import Decoded
from petastore.errors import DecodeError, TransformError
from petastore.plan.selection import Selection
from petastore.predicates import told_by
from petastore.readers.bad_rows.quarantine import Quarantine
from petastore.readers.bad_rows.row_check import RowCheck, RowError
from petastore.readers.execution.execution import Functions
from petastore.readers.execution.first_row import described
from petastore.readers.options import RowOptions, RunOptions
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.selecting.remembered import RememberedSelections, selections_of
from petastore.transforming.transform import TransformSpec, as_transform_spec, is_described
from petastore.work import Pool
from petastore.work.futures import in_order
from petastore.work.pools import Workers

__all__ = ["without_bad_rows"]

_VERSION = 1  # version of the scan; a change invalidates all cached results
_ROWS_PER_CALL = {"row": 256, "dataframe": 8192, "columns": 8192}
_SHOWN_ROWS = 3
_FIRST_ROWS = 100
"""Maximum number of first rows that are tried to infer the output schema of a transform without `edit_fields`.

If a row cannot be decoded or transformed, the next row is tried."""

_LOGGED_EVERY_S = 30.0
_log = logging.getLogger(__name__)


def without_bad_rows(
    dataset: Dataset,
    fields: Sequence[UnischemaField],
    selection: Selection | None,
    options: RowOptions,
    run: RunOptions,
    *,
    batched: bool,
    source: tuple[str, int] | None = None,
) -> Selection | None:
    """Return the selection without bad rows; unchanged if all rows are good.

    Args:
        dataset: The dataset.
        fields: Fields that are read.
        selection: Selected rows; None means all.
        options: `on_error`, `quarantine`, `max_bad_rows` and `filter_cache`.
        run: Workers, and the transform.
        batched: Whether the reader yields batches.
        source: Name and value of a column with the source of each row; None without such a column.

    Raises:
        DecodeError: There are more bad rows than `max_bad_rows`, or only bad rows, and the first bad row cannot be
            decoded.
        TransformError: Too many rows are bad, and the transform raised for the first one.
    """
    before = Selection(dataset.inventory.rows, {}) if selection is None else selection
    spec = as_transform_spec(run.transform_spec)
    memory = selections_of(dataset, options.filter_cache)
    key = _key(memory, fields, selection, spec, run, batched=batched, source=source)
    good = None if memory is None or key is None else memory.load(key, dataset.inventory.rows)
    if good is not None and good.counts.sum() == before.counts.sum():
        return selection
    if good is not None:
        good = dataclasses.replace(good, before=before)
    with _check(dataset, fields, before, spec, run, batched=batched, source=source) as (check, pool):
        scan = _Scan(dataset, before, check, pool, options.max_bad_rows)
        if good is None:
            good = scan.good_rows()
            if memory is not None and key is not None:
                memory.save(key, good, dataset.inventory.rows)
        bad = int((before.counts - good.counts).sum())
        if not bad:
            return selection  # unchanged, so that readers with any `on_error` can load the same saved state
        scan.check_count(good)
        if options.quarantine is not None:
            Quarantine(dataset, fields, options.quarantine).write(good, scan.bad_rows(good))
    _log.warning("%s of %s selected rows of %s are left out", f"{bad:,}", f"{before.counts.sum():,}", dataset.url)
    return good


@dataclasses.dataclass(frozen=True, eq=False)
class _Scan:
    """Search for bad rows among the selected rows of a dataset."""

    dataset: Dataset
    before: Selection
    check: RowCheck
    pool: Pool
    most: float | None

    @property
    def limit(self) -> int:
        """Maximum number of bad rows; without `max_bad_rows`, all selected rows but one."""
        rows = int(self.before.counts.sum())
        if self.most is None:
            return max(rows - 1, 0)
        return self.most if isinstance(self.most, int) else int(self.most * rows)

    def good_rows(self) -> Selection:
        """Return the selection without the bad rows."""
        groups = np.flatnonzero(self.before.counts)
        rows, began = int(self.before.counts.sum()), time.monotonic()
        _log.info("%s rows of %s are decoded once, to find bad rows", f"{rows:,}", self.dataset.url)
        found = in_order(self._bad_of_group, groups.tolist(), self.pool)
        excluded = {group: bad for group, bad in self._counted(found, began) if bad.any()}
        good = self.before.without(excluded, self.dataset.inventory.rows, by="bad rows")
        bad = rows - int(good.counts.sum())
        _log.info("%s of %s rows are bad; found in %.3g s", f"{bad:,}", f"{rows:,}", time.monotonic() - began)
        return good

    def _counted(
        self, found: Iterable[tuple[int, NDArray[np.bool_]]], began: float
    ) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """Yield the items of `found` unchanged; log progress, and raise an error if too many rows are bad.

        Args:
            found: For each row group, its number and the mask of its bad rows.
            began: Time at which the scan began, by `time.monotonic`.

        Raises:
            DecodeError: Too many rows are bad, and the first one cannot be decoded.
            TransformError: Too many rows are bad, and the transform raised for the first one.
        """
        seen, logged, bad_rows, excluded = 0, began, 0, {}
        for group, bad in found:
            yield group, bad
            seen += int(self.before.counts[group])
            if bad.any():
                excluded[group] = bad
                bad_rows += int(np.count_nonzero(bad))
            if bad_rows > self.limit:
                self.check_count(self.before.without(excluded, self.dataset.inventory.rows, by="bad rows"))
            if time.monotonic() - logged > _LOGGED_EVERY_S:
                logged = time.monotonic()
                _log.info("%s of %s rows are decoded", f"{seen:,}", f"{self.before.counts.sum():,}")

    def check_count(self, good: Selection) -> None:
        """Raise if there are too many bad rows.

        Raises:
            DecodeError: Too many rows are bad, and the first one cannot be decoded.
            TransformError: Too many rows are bad, and the transform raised for the first one.
        """
        rows = int(self.before.counts.sum())
        bad = rows - int(good.counts.sum())
        if bad <= self.limit:
            return
        shown: list[str] = []
        first: RowError | None = None
        for _, numbers, _, errors in self.bad_rows(good):
            for _, problem in zip(numbers, errors, strict=True):
                first = problem if first is None else first
                shown.append(str(problem))
            if len(shown) >= _SHOWN_ROWS:
                break
        if self.most is None:
            text = f"on_error must leave at least one good row, but all {rows:,} selected rows are bad"
        else:
            text = f"max_bad_rows must be at least {bad:,}, the bad rows found among {rows:,}, got {self.most}"
        text += f". Correct the data or the transform. The first bad rows are: {'; '.join(shown[:_SHOWN_ROWS])}"
        raise (TransformError(text) if isinstance(first, TransformError) else DecodeError(text)) from first

    def bad_rows(self, good: Selection) -> Iterator[tuple[int, list[int], dict[str, Any], list[RowError]]]:
        """Yield (row group, numbers of its bad rows, stored cells, errors) for each row group with bad rows."""
        groups = np.flatnonzero(self.before.counts > good.counts)
        for group, (rows, cells, errors) in in_order(
            functools.partial(self._errors_of_group, good), groups.tolist(), self.pool
        ):
            yield group, rows, cells, errors

    def _bad_of_group(self, group: int) -> NDArray[np.bool_]:
        """Return a mask of the bad rows of a row group, shape (rows of the row group,)."""
        rows = self._selected(self.before, group)
        bad = np.zeros(self.dataset.inventory.rows[group], np.bool_)
        bad[rows[self.check.failing(self.check.cells(group, rows), len(rows))]] = True
        return bad

    def _errors_of_group(self, good: Selection, group: int) -> tuple[list[int], dict[str, Any], list[RowError]]:
        """Return the numbers of a row group's bad rows, their stored cells and their errors."""
        rows = np.setdiff1d(self._selected(self.before, group), self._selected(good, group))
        cells = self.check.cells(group, rows)
        file, ordinal = self.dataset.inventory.place_of(group)
        errors: list[RowError] = []
        for row, problem in zip(rows.tolist(), self.check.errors(cells, len(rows)), strict=True):
            if isinstance(problem, DecodeError):
                problem.row = row
                errors.append(problem.at(file=file.path, row_group=ordinal))
            else:
                why = (
                    "the transform raised an error for rows that include this row" if problem is None else str(problem)
                )
                placed = TransformError(f"row {row} of row group {ordinal} in {file.path}: {why}")
                placed.__cause__ = None if problem is None else problem.__cause__
                errors.append(placed)
        return rows.tolist(), cells, errors

    def _selected(self, selection: Selection, group: int) -> NDArray[np.int64]:
        """Return the numbers of the selected rows of a row group, shape (n,)."""
        if not selection.counts[group]:
            return np.zeros(0, np.int64)
        bitmap = selection.bitmaps.get(group)
        return np.arange(self.dataset.inventory.rows[group]) if bitmap is None else np.flatnonzero(bitmap)


@contextlib.contextmanager
def _check(
    dataset: Dataset,
    fields: Sequence[UnischemaField],
    selection: Selection,
    spec: TransformSpec | None,
    run: RunOptions,
    *,
    batched: bool,
    source: tuple[str, int] | None,
) -> Iterator[tuple[RowCheck, Pool]]:
    """Context manager: yield the row check and its worker pool; at the end, close the pool and transform processes."""
    more = {} if source is None else {source[0]: source[1]}
    view = Unischema(f"{dataset.schema.name}_view", [*fields, *(UnischemaField(name, "int32") for name in more)])
    workers = _within_budget(run.workers, dataset)
    of_one = {name: Decoded(np.full(1, value, np.int32), None) for name, value in more.items()}
    spec = _described(spec, dataset, selection, view, of_one, run, batched=batched)
    functions = Functions.of([spec], workers=workers, batched=batched)
    _, transform = functions.transform(spec, view, dataset, Buffers())
    takes = None if spec is None else spec.takes or ("dataframe" if batched else "row")
    check = RowCheck(
        dataset,
        tuple(fields),
        workers.max_cell_bytes,
        transform,
        more,
        functions.draw,
        _ROWS_PER_CALL.get(takes or "columns", 1),
    )
    pool = functions.pool()
    try:
        yield check, pool
    finally:
        functions.close()
        pool.close()
        pool.join()
        functions.join()


def _within_budget(workers: Workers, dataset: Dataset) -> Workers:
    """Return the workers, at most as many as `memory_budget` allows: each worker has a row group in memory."""
    if workers.memory_budget is None or workers.kind == "dummy":
        return workers
    largest = max(int(dataset.inventory.decoded_bytes.max(initial=1)), 1)
    return dataclasses.replace(workers, count=max(min(workers.at_a_time, workers.memory_budget // (2 * largest)), 1))


def _described(
    spec: TransformSpec | None,
    dataset: Dataset,
    selection: Selection,
    view: Unischema,
    more: dict[str, Decoded],
    run: RunOptions,
    *,
    batched: bool,
) -> TransformSpec | None:
    """Return the transform; if it lacks `edit_fields`, infer them from the first row that is not bad."""
    left, described_spec = selection, spec
    for _ in range(_FIRST_ROWS):
        described_spec = described(spec, dataset, left, view, workers=run.workers, batched=batched, more=more)
        if described_spec is None or is_described(described_spec) or not left.counts.any():
            break
        group = int(np.flatnonzero(left.counts)[0])
        rows = int(dataset.inventory.rows[group])
        first = np.zeros(rows, np.bool_)
        first[left.rows_at(np.array([group], np.int32), np.zeros(1, np.int64))] = True
        left = left.without({group: first}, dataset.inventory.rows, by="bad rows")
    return described_spec


def _key(
    memory: RememberedSelections | None,
    fields: Sequence[UnischemaField],
    selection: Selection | None,
    spec: TransformSpec | None,
    run: RunOptions,
    *,
    batched: bool,
    source: tuple[str, int] | None,
) -> str | None:
    """Return the cache key of a scan; None without a cache, or if the transform function has no `cache_key()`."""
    if memory is None:
        return None
    of_transform: Any = None
    if spec is not None:
        of_function = None if spec.func is None else told_by(spec.func, "cache_key")
        if spec.func is not None and of_function is None:
            return None
        declared = (spec.edit_fields, spec.removed_fields, spec.selected_fields, spec.takes, spec.rng)
        of_transform = [of_function, repr(declared), batched, source]
    among = None if selection is None else selection.fingerprint
    question = ["bad rows", _VERSION, among, of_transform, run.workers.max_cell_bytes]
    return memory.key(question, fields)
