"""Filter: select the matching rows exactly, before the plan is made.

Row groups are excluded first by a row-group selector, if given, then by partition values, and then by statistics in the
footers of the remaining files. For all other row groups, only the filter's columns are read. A predicate is evaluated
last, on the rows that the filter selects. The result is a `Selection`, from which the plan is computed, so epochs with
a filter have equal steps and can resume on any number of ranks.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from petastore.arrow import arrow_numbers, flags_of
from petastore.callers import frames_inside_petastore
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.dataset.stored_cells import stored_cells
from petastore.decoding.decode import decode_cells
from petastore.errors import DecodeError, SchemaError, TransformError
from petastore.expressions import ColumnStatistics, Expression, bind, parse_filters
from petastore.plan.prune import Verdict, prune
from petastore.plan.selection import Pruned, PrunedBy, Selection
from petastore.schema.field import UnischemaField
from petastore.schema.select import member_field
from petastore.schema.unischema import Unischema
from petastore.selecting.bounds import Bounds
from petastore.selecting.divide import divide
from petastore.selecting.predicate import RowPredicate, parse_predicate, predicate_columns
from petastore.selecting.remembered import RememberedSelections, selection_directory, selections_of
from petastore.selecting.selected_groups import selected_groups
from petastore.selecting.truth import true_rows
from petastore.storage.footers.footer_statistics import read_statistics
from petastore.work.futures import in_order
from petastore.work.pools import Workers

__all__ = ["filter_row_groups", "select_rows"]

_VERSION = 3  # version of the filter semantics: a change invalidates all cached selections
_log = logging.getLogger(__name__)

Look = Callable[[int], NDArray[np.bool_]]


def select_rows(
    dataset: Dataset,
    *,
    filters: Any = None,
    predicate: Any = None,
    rowgroup_selector: Any = None,
    workers: Workers | None = None,
    filter_cache: str | os.PathLike[str] | bool = True,
    batched: bool = False,
) -> Selection | None:
    """Return the rows that match a filter, predicate or row-group selector.

    The columns of the filter are scanned once, which reads data, and the result is stored in the filter cache for later
    calls. Ranks that start at the same time scan independently, and get the same result.

    Args:
        dataset: The dataset to select from.
        filters: An expression such as `petastore.col("split") == "train"`, or pyarrow's nested lists of `(column,
            operator, value)`. A row is selected if the expression is true (not null). Its columns need not be among the
            columns that the reader returns.
        predicate: One of `petastore.predicates`, any object with `get_fields()` and `do_include(values)`, or a function
            of a row as a dict of all fields. It is called for each row that `filters` selects, from several threads at
            a time. `in_set` and similar predicates are evaluated as filters. Results are cached only if the predicate
            has `cache_key()`.
        rowgroup_selector: Row-group filter by stored indexes, from `petastore.selectors`.
        workers: Workers that scan; None means one thread per CPU.
        filter_cache: Directory of cached results: a local directory; True for `selections` in the directory of the
            environment variable `PETASTORE_CACHE`, or else in the user's cache directory; False for no cache.
        batched: Whether `do_include` of the predicate receives a pandas DataFrame of many rows, as in
            `make_batch_reader`, instead of one row.

    Returns:
        The selection for `dataset.plan(selection=…)`; None if no filter was given. Issues a `UserWarning` if no row of
        a non-empty dataset is selected.

    Raises:
        InvalidArgumentError: The filter is invalid: an unknown column, a literal of the wrong type, or an ordering
            comparison of a column without order.
        SchemaError: A filter column cannot be read; the message has the reason.
        DecodeError: A cell of a filter column cannot be decoded.
        TransformError: The predicate raised, or did not return a bool.
        DatasetChangedError: A file differs from the inventory.

    Example:
        >>> import tempfile, petastore
        >>> schema = petastore.Unischema("user", [petastore.UnischemaField("id", "int64")])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = petastore.write_dataset(folder, schema, [{"id": n} for n in range(10)], rows_per_row_group=4)
        ...     dataset = petastore.open_dataset(folder)
        ...     selection = select_rows(dataset, filters=[("id", ">=", 7)], filter_cache=False)
        >>> selection, dataset.plan(selection=selection).num_rows
        (Selection(3 rows in 2 of 3 row groups), 3)
    """
    selection_directory(filter_cache)  # raises an error for an invalid argument, also without a filter
    if filters is None and predicate is None and rowgroup_selector is None:
        return None
    expression = None if filters is None else parse_filters(filters)
    predicates: list[RowPredicate] = []
    if predicate is not None:
        dataset.refuse_unreadable(predicate_columns(predicate))
        zones = dataset.time_zones if batched else None
        parse_predicate(predicate, dataset.schema, zones=zones)  # validate the whole predicate before it is split
        divided = divide(predicate, dataset.schema, dataset.partition_names)
        if divided.filter is not None:
            expression = divided.filter if expression is None else expression & divided.filter
        # `do_include` of a predicate on partition columns receives a dict for each row group, also in a batch reader,
        # as in Petastorm. Such a predicate therefore needs no time zones, which are only for DataFrames.
        asked_about = [(divided.of_partitions, None), (divided.of_rows, zones)]
        predicates = [parse_predicate(part, dataset.schema, zones=of) for part, of in asked_about if part is not None]
    bound = None if expression is None else _bound(expression, dataset)
    memory = selections_of(dataset, filter_cache)
    among, question = dataset.inventory.rows, "all"
    if rowgroup_selector is not None:
        picked = selected_groups(dataset, rowgroup_selector)
        among, question = np.where(picked, among, 0), hashlib.sha256(np.packbits(picked).tobytes()).hexdigest()
        _log.info("row-group selector: %s of %s row groups picked", picked.sum(), len(picked))
    search = _Search(dataset, workers or Workers(), memory, among)
    selection = Selection(among, {}, search.by_index)
    key = search.key(question, ())
    if expression is not None and bound is not None:
        described = expression.describe() if rowgroup_selector is None else ["among", question, expression.describe()]
        key = search.key(described, expression.columns)
        selection = search.filtered(bound, key)
    for included in predicates:
        names = [field.name for field in included.fields]
        known = key is not None and included.cache_key is not None
        key = search.key(["predicate", key, included.cache_key, names], names) if known else None
        selection = search.included(included, selection, key)
    if dataset.inventory.num_rows and not selection.counts.any():
        given = (("filters", filters), ("predicate", predicate), ("rowgroup_selector", rowgroup_selector))
        _tell_of_nothing(dataset, given)
    return selection


def filter_row_groups(dataset: Dataset, filters: Expression, among: NDArray[np.bool_], workers: Workers) -> Selection:
    """Return the rows of some row groups that match a filter.

    The result is not cached, and no warnings are issued.

    Args:
        dataset: The dataset to select from.
        filters: The filter.
        among: Mask of the row groups to search, shape (groups,); rows of other row groups are not selected.
        workers: Workers that scan.

    Raises:
        InvalidArgumentError, DecodeError, DatasetChangedError: As in `select_rows`.
    """
    search = _Search(dataset, workers, None, np.where(among, dataset.inventory.rows, 0))
    return search.filtered(_bound(filters, dataset), None)


def _bound(expression: Expression, dataset: Dataset) -> Expression:
    """Return a filter with tests of stored values instead of comparisons; raise an error if it does not fit."""
    dataset.refuse_unreadable(expression.columns)
    return bind(expression, _fields_of(expression, dataset.schema), among=dataset.url)


def _fields_of(expression: Expression, schema: Unischema) -> dict[str, UnischemaField]:
    """Return the fields of a schema, and of struct members that a filter uses, by name.

    A filter names a struct member by a dotted name, such as `point.x`.
    """
    members = {name: member_field(schema.fields, name) for name in expression.columns if name not in schema}
    return {**schema.fields, **{name: field for name, field in members.items() if field is not None}}


def _tell_of_nothing(dataset: Dataset, given: Iterable[tuple[str, Any]]) -> None:
    conditions = " and ".join(f"{name}={_named(value):.300}" for name, value in given if value is not None)
    warnings.warn(
        f"none of the {dataset.inventory.num_rows:,} rows of {dataset.url} matches {conditions}, so no rows are read. "
        "Check the spelling of the values",
        UserWarning,
        stacklevel=frames_inside_petastore() + 1,
    )


def _named(condition: Any) -> str:
    """Return the `repr` of a filter, or its name and fields if the `repr` has an address."""
    shown = repr(condition)
    if " at 0x" not in shown:
        return shown
    tell = getattr(condition, "get_fields", getattr(condition, "get_index_names", None))
    of = f" of {', '.join(sorted(map(str, tell())))}" if tell is not None else ""
    return getattr(condition, "__qualname__", type(condition).__name__) + of


@dataclasses.dataclass(frozen=True, eq=False)
class _Search:
    """Evaluation of a filter and predicates on one dataset.

    Selections come from the cache, or row groups are pruned and the rest is scanned.
    """

    dataset: Dataset
    workers: Workers
    memory: RememberedSelections | None
    among: NDArray[np.int64]  # number of candidate rows of each row group: all or 0, shape (groups,)

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.dataset.inventory.rows

    @property
    def by_index(self) -> tuple[Pruned, ...]:
        """Number of rows and row groups that `rowgroup_selector=` skips; () means none."""
        return _left_out("row-group index", self.rows, self.among)

    def key(self, question: Any, columns: Iterable[str]) -> str | None:
        """Return the key of a selection in the filter cache; None without a cache.

        Args:
            question: JSON values that describe the filter.
            columns: Names of the columns that the filter uses.
        """
        if self.memory is None:
            return None
        return self.memory.key([_VERSION, question], [self.dataset.schema[name] for name in columns])

    def filtered(self, bound: Expression, key: str | None) -> Selection:
        """Return the selection of the rows for which a filter is true.

        It is computed from partition values, loaded from the cache by `key`, or found by a scan.
        """
        dataset, names = self.dataset, bound.columns
        fields = {name: dataset.schema[name] for name in names}
        partitions = dataset.partition_values(names)
        known = {name: _constant(fields[name], cells, self.rows) for name, cells in partitions.items()}
        by_partition = prune(bound, known, self.among)
        if len(by_partition.undecided) == 0:
            _log.info(
                "filter decided by partition values: %s of %s row groups kept", by_partition.all.sum(), len(self.rows)
            )
            return Selection(np.where(by_partition.all, self.among, 0), {}, self._pruned(by_partition))
        found = self._remembered(key)
        if found is not None:
            return found
        stored = [field for name, field in fields.items() if name not in partitions]
        known |= read_statistics(
            dataset.location, dataset.inventory, stored, groups=by_partition.undecided, footers=dataset.footers
        )
        verdict = prune(bound, known, self.among)
        _log.info(
            "filter over %s row groups: %s dropped by partition values, %s by statistics, %s kept whole, %s to be read",
            *(len(self.rows), by_partition.none.sum(), verdict.none.sum() - by_partition.none.sum()),
            *(verdict.all.sum(), len(verdict.undecided)),
        )

        def look(group: int) -> NDArray[np.bool_]:
            bounds = {field.name: Bounds.of(known[field.name], group) for field in stored}
            cells = stored_cells(self.dataset, tuple(fields), group, partitions=partitions)
            return true_rows(bound, cells, fields, bounds)

        disputed = self._disputed(known, by_partition.undecided)
        undecided = ~(verdict.none | verdict.all) | disputed
        pruned, searched = self._pruned(by_partition, verdict), np.where(undecided, self.rows, 0)
        return self._settled(key, "filter", look, searched, pruned, whole=verdict.all & ~disputed)

    def _disputed(self, known: Mapping[str, ColumnStatistics], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return a mask of row groups whose stored partition key may be wrong.

        Such a key may differ from the name of its directory. The row groups are read even if the filter skips them,
        because reading compares each cell with the directory name. The mask has the shape (groups,).
        """
        agreed = np.ones(len(self.rows), np.bool_)
        for name in known.keys() & set(self.dataset.stored_keys):
            field, stored = self.dataset.schema[name], known[name]
            try:
                of_directories = _constant(field, self.dataset.directory_values(name), self.rows)
            except SchemaError:
                agreed[:] = False
                continue
            is_value = stored.has_minimum & stored.has_maximum & (stored.nulls == 0) & (of_directories.nulls == 0)
            is_value &= (
                (stored.minimum == of_directories.minimum)
                & (stored.maximum == of_directories.maximum)
                & ~stored.may_be_nan
            )
            agreed &= is_value | (stored.nulls == self.rows) & (of_directories.nulls == self.rows)
        disputed = np.zeros_like(agreed)
        disputed[groups] = ~agreed[groups]
        return disputed & (self.among > 0)

    def _pruned(self, by_partition: Verdict, by_statistics: Verdict | None = None) -> tuple[Pruned, ...]:
        """Return how many rows and row groups are skipped without reading data.

        There is one item for each cause: row-group selector, partition values and statistics.
        """
        left = np.where(by_partition.none, 0, self.among)
        pruned = self.by_index + _left_out("partition values", self.among, left)
        if by_statistics is None:
            return pruned
        return pruned + _left_out("statistics", left, np.where(by_statistics.none, 0, left))

    def included(self, predicate: RowPredicate, before: Selection, key: str | None) -> Selection:
        """Return the rows of the selection `before` that a predicate includes.

        The new selection is loaded from the cache by `key`, or found by a scan. It is not cached if `key` is None.
        """
        found = self._remembered(key)
        if found is not None:
            return found
        fields = {field.name: field for field in predicate.fields}
        partitions = self.dataset.partition_values(tuple(fields))
        if not fields.keys() - partitions:
            return self._included_row_groups(predicate, before, partitions)

        def look(group: int) -> NDArray[np.bool_]:
            bitmap = before.bitmaps.get(group)
            rows = None if bitmap is None else np.flatnonzero(bitmap)
            columns = {}
            for name, cells in stored_cells(self.dataset, tuple(fields), group, partitions=partitions).items():
                chosen = cells if rows is None else cells.take(arrow_numbers(rows))
                columns[name] = _decoded(chosen, fields[name], rows, self.workers.max_cell_bytes)
            answers = predicate.included(columns, int(before.counts[group]))
            if bitmap is None or rows is None:
                return answers
            kept = np.zeros_like(bitmap)
            kept[rows[answers]] = True
            return kept

        return self._settled(key, "predicate", look, before.counts, before.pruned)

    def _included_row_groups(
        self, predicate: RowPredicate, before: Selection, partitions: Mapping[str, Any]
    ) -> Selection:
        """Evaluate a predicate on partition columns, once for each row group.

        Return the rows of the selection `before` in the row groups that the predicate includes. No data is read.
        """
        groups = np.flatnonzero(before.counts)
        columns = {
            field.name: _decoded(partitions[field.name].take(arrow_numbers(groups)), field, None, None)
            for field in predicate.fields
        }
        kept = groups[predicate.included(columns, len(groups))]
        counts = np.zeros_like(before.counts)
        counts[kept] = before.counts[kept]
        bitmaps = {group: bitmap for group, bitmap in before.bitmaps.items() if counts[group]}
        return Selection(counts, bitmaps, before.pruned + _left_out("predicate", before.counts, counts))

    def _remembered(self, key: str | None) -> Selection | None:
        found = None if self.memory is None or key is None else self.memory.load(key, self.rows)
        if found is not None:
            _log.info("%r was remembered", found)
        return found

    def _settled(
        self,
        key: str | None,
        by: PrunedBy,
        look: Look,
        searched: NDArray[np.int64],
        pruned: tuple[Pruned, ...],
        *,
        whole: NDArray[np.bool_] | None = None,
    ) -> Selection:
        """Search row groups in the workers, and return the selection of matching rows.

        The row groups in `whole` are selected without a search. The selection is saved in the filter cache, if there is
        one.

        Args:
            key: Key in the filter cache; None if the selection is not cached.
            by: Name of the step, under which skipped rows are counted.
            look: Function that returns which rows of a row group match.
            searched: Number of rows to search in each row group, shape (groups,); 0 skips the row group.
            pruned: Numbers of rows that previous steps skipped.
            whole: Mask of the row groups whose rows are all selected, shape (groups,); None means no row group.
        """
        groups = np.flatnonzero(searched)
        placed = functools.partial(self._placed, look)
        began = time.perf_counter()
        pool = self.workers.pool()
        try:
            selection = Selection.of_flags(in_order(placed, groups.tolist(), pool), self.rows, whole=whole)
        finally:
            pool.close()
            pool.join()
        seconds, read = time.perf_counter() - began, int(self.rows[groups].sum())
        _log.info("%s rows looked at in %.3g s (%.3g rows/s)", f"{read:,}", seconds, read / max(seconds, 1e-9))
        left = np.where(searched > 0, selection.counts, 0)
        selection = dataclasses.replace(selection, pruned=pruned + _left_out(by, searched, left))
        if self.memory is not None and key is not None:
            self.memory.save(key, selection, self.rows)
        return selection

    def _placed(self, look: Look, group: int) -> NDArray[np.bool_]:
        """Call `look` for a row group; add the file and row group to its exceptions."""
        file, ordinal = self.dataset.inventory.place_of(group)
        try:
            return look(group)
        except DecodeError as problem:
            raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__
        except TransformError as problem:
            raise TransformError(f"row group {ordinal} of {file.path}: {problem}") from problem.__cause__


def _left_out(by: PrunedBy, before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[Pruned, ...]:
    """Return how many rows and row groups a step skips; () if it skips no rows.

    Args:
        by: Name of the step.
        before: Rows of each row group before the step, shape (groups,).
        after: Rows of each row group after the step, shape (groups,).
    """
    rows, row_groups = int((before - after).sum()), int(((before > 0) & (after == 0)).sum())
    return (Pruned(by, row_groups, rows),) if rows else ()


def _decoded(cells: Any, field: UnischemaField, rows: NDArray[np.int64] | None, max_cell_bytes: int | None) -> Any:
    try:
        return decode_cells(cells, field, codec_of(field), max_cell_bytes=max_cell_bytes)
    except DecodeError as problem:
        if problem.row is not None and rows is not None:
            problem.row = int(rows[problem.row])
        raise problem.at(column=field.name) from problem.__cause__


def _constant(field: UnischemaField, cells: Any, rows: NDArray[np.int64]) -> ColumnStatistics:
    """Return the statistics of a partition column: one value in each row group."""
    missing: NDArray[np.bool_] = flags_of(cells.is_null())
    values = decode_cells(cells, field, codec_of(field), max_cell_bytes=None).values
    if field.numpy_dtype is np.str_:
        encoded = np.empty_like(values)
        encoded[:] = [b"" if value is None else value.encode() for value in values]
        values = encoded
    elif values.dtype.kind in "mM":
        values = values.view(np.int64)
    elif values.dtype.kind == "f":
        values = values.astype(np.float64)
    return ColumnStatistics.of_values(values, missing, rows)
