"""Filter: which rows are wanted, settled once and exactly before anything is planned.

A selector of row groups, where there is one, narrows down what all else is asked about. Partition values decide first,
then the statistics in the footers of the files that are left, and what is still undecided is settled by reading the
filter's columns alone. A predicate is asked last, about the rows that the filter leaves. What comes out is a
`Selection`, on which the plan runs: epochs under a filter are as even, elastic and resumable as without.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from petastore.arrow.memory import arrow_numbers, flags_of, only_chunk
from petastore.callers import frames_inside_petastore
from petastore.codecs.registry import codec_of
from petastore.dataset import Dataset
from petastore.decoding.decode import decode_cells
from petastore.errors import DecodeError, SchemaError, TransformError
from petastore.expressions import ColumnStatistics, Expression, bind, parse_filters
from petastore.plan.prune import Verdict, prune
from petastore.plan.selection import Pruned, PrunedBy, Selection
from petastore.plan.unit import ReadUnit
from petastore.schema.field import UnischemaField
from petastore.selecting.divide import divide
from petastore.selecting.predicate import RowPredicate, parse_predicate
from petastore.selecting.remembered import RememberedSelections, selection_directory, selection_of
from petastore.selecting.selected_groups import selected_groups
from petastore.selecting.selection_file import Kept, as_kept
from petastore.selecting.shared_scan import SharedScan
from petastore.selecting.truth import true_rows
from petastore.storage.footers.statistics import read_statistics
from petastore.work import Pool
from petastore.work.futures import in_order
from petastore.work.workers import Workers

__all__ = ["select_rows"]

_VERSION = 3  # of what filters mean and what is remembered: a change makes all remembered selections foreign
_log = logging.getLogger(__name__)

Look = Callable[[int], Kept]


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
    """Which rows of a dataset are wanted; the one step of asking that may read.

    Reads what it must and remembers the answer, so that to ask again is free. Processes that ask the same at once and
    share the directory divide the reading.

    Args:
        dataset: Where.
        filters: An expression such as `petastore.col("split") == "train"`, or pyarrow's nested lists of `(column,
            operator, value)`. Its columns need not be among those that are read. Rows are kept where it is true.
        predicate: One of `petastore.predicates`, or any object with `get_fields()` and `do_include(values)`, or a
            function of a row as a dict of all fields; asked about each row that `filters` leaves, in threads, several
            at a time. What of it is a filter is treated as one. Remembered only where it has `cache_key()`.
        rowgroup_selector: One of `petastore.selectors`: only the row groups that it picks are looked at.
        workers: Who reads; None is threads, one for each CPU.
        filter_cache: Where answers are remembered: a local directory, True for the user's cache directory or the one
            that the environment variable `PETASTORE_CACHE` names, False for nowhere.
        batched: Whether the predicate is that of a batch reader: `do_include` is then given pandas DataFrames.

    Returns:
        The selection for `dataset.plan(selection=…)`; None where nothing was asked. Where no row is kept of a dataset
        that has rows, a `UserWarning` says so.

    Raises:
        InvalidArgumentError: The filter cannot be: unknown column, a literal of another kind, a column without an
            order.
        DecodeError: A cell that it looks at is not what its field declares.
        TransformError: The predicate raised, or returned no truth.
        DatasetChangedError: A file is not the one that the inventory describes.

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
    directory = selection_directory(filter_cache)
    if filters is None and predicate is None and rowgroup_selector is None:
        return None
    asked = None if filters is None else parse_filters(filters)
    predicates: list[RowPredicate] = []
    if predicate is not None:
        zones = dataset.time_zones if batched else None
        parse_predicate(predicate, dataset.schema, zones=zones)  # refused as a whole, before it is divided
        divided = divide(predicate, dataset.schema, dataset.partition_names)
        asked = divided.filter if asked is None else asked if divided.filter is None else asked & divided.filter
        # One value for each row group: partitions are asked about as rows in every reader, as Petastorm does.
        asked_about = [(divided.of_partitions, None), (divided.of_rows, zones)]
        predicates = [parse_predicate(part, dataset.schema, zones=of) for part, of in asked_about if part is not None]
    bound = None if asked is None else bind(asked, dataset.schema.fields, among=dataset.url)
    # A version without digests may be another one that looks alike.
    is_version_known = all(file.digest for file in dataset.inventory.files)
    memory = RememberedSelections(directory) if directory is not None and is_version_known else None
    among, question = dataset.inventory.rows, "all"
    if rowgroup_selector is not None:
        picked = selected_groups(dataset, rowgroup_selector)
        among, question = np.where(picked, among, 0), hashlib.sha256(np.packbits(picked).tobytes()).hexdigest()
        _log.info("row-group selector: %s of %s row groups picked", picked.sum(), len(picked))
    search = _Search(dataset, workers or Workers(), memory, among)
    selection = Selection(among, {}, search.by_index)
    key: str | None = _key(dataset, question, ())
    if asked is not None and bound is not None:
        described = asked.describe() if rowgroup_selector is None else ["among", question, asked.describe()]
        of_filter = key = _key(dataset, described, asked.columns)
        selection = search.filtered(bound, of_filter)
    for included in predicates:
        names = [field.name for field in included.fields]
        known = key is not None and included.cache_key is not None
        key = _key(dataset, ["predicate", key, included.cache_key, names], names) if known else None
        selection = search.included(included, selection, key)
    if dataset.inventory.num_rows and not selection.counts.any():
        given = (("filters", filters), ("predicate", predicate), ("rowgroup_selector", rowgroup_selector))
        _tell_of_nothing(dataset, given)
    return selection


def _tell_of_nothing(dataset: Dataset, given: Iterable[tuple[str, Any]]) -> None:
    said = " and ".join(f"{name}={_named(value):.300}" for name, value in given if value is not None)
    warnings.warn(
        f"none of the {dataset.inventory.num_rows:,} rows of {dataset.url} is kept by {said}: nothing is read. "
        "Look whether the values are spelled as in the data",
        UserWarning,
        stacklevel=frames_inside_petastore() + 1,
    )


def _named(asked: Any) -> str:
    """A filter, or what stands for one, for people: not where it lies in memory."""
    shown = repr(asked)
    if " at 0x" not in shown:
        return shown
    tell = getattr(asked, "get_fields", getattr(asked, "get_index_names", None))
    of = f" of {', '.join(sorted(map(str, tell())))}" if tell is not None else ""
    return getattr(asked, "__qualname__", type(asked).__name__) + of


def _key(dataset: Dataset, question: Any, columns: Iterable[str]) -> str:
    fields = [repr(dataset.schema[name]) for name in columns]
    text = json.dumps([_VERSION, dataset.inventory.fingerprint, question, fields])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclasses.dataclass(frozen=True, eq=False)
class _Question:
    """A question that is asked about each row of some row groups."""

    by: PrunedBy  # what it leaves out is pruned by this
    pruned: tuple[Pruned, ...]  # what was left out before
    asked: NDArray[np.int64]  # rows of each row group that it is asked about, shape (groups,)
    look: Look


@dataclasses.dataclass(frozen=True, eq=False)
class _Search:
    """A search for the rows of one dataset."""

    dataset: Dataset
    workers: Workers
    memory: RememberedSelections | None
    among: NDArray[np.int64]  # rows of each row group that may be wanted: all of it or none, shape (groups,)

    @property
    def rows(self) -> NDArray[np.int64]:
        return self.dataset.inventory.rows

    @property
    def by_index(self) -> tuple[Pruned, ...]:
        """What a row-group selector left out."""
        return _left_out("row-group index", self.rows, self.among)

    def filtered(self, bound: Expression, key: str) -> Selection:
        """The rows for which a filter is true."""
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

        def look(group: int) -> Kept:
            return as_kept(true_rows(bound, self._cells(group, fields, partitions), fields))

        disputed = self._disputed(known, by_partition.undecided)
        undecided = ~(verdict.none | verdict.all) | disputed
        question = _Question("filter", self._pruned(by_partition, verdict), np.where(undecided, self.rows, 0), look)
        whole = np.flatnonzero(verdict.all & ~disputed).tolist()
        return self._settled(key, question, whole=dict.fromkeys(whole, True))

    def _disputed(self, known: Mapping[str, ColumnStatistics], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Where statistics do not show that a partition key which the files store is what the directory says.

        Those are looked at, whatever the filter makes of them: reading holds each cell against the directory.
        """
        agreed = np.ones(len(self.rows), np.bool_)
        for name in known.keys() & set(self.dataset.stored_keys):
            field, stored = self.dataset.schema[name], known[name]
            try:
                said = _constant(field, self.dataset.directory_values(name), self.rows)
            except SchemaError:
                agreed[:] = False
                continue
            is_value = stored.has_minimum & stored.has_maximum & (stored.nulls == 0) & (said.nulls == 0)
            is_value &= (stored.minimum == said.minimum) & (stored.maximum == said.maximum) & ~stored.may_be_nan
            agreed &= is_value | (stored.nulls == self.rows) & (said.nulls == self.rows)
        disputed = np.zeros_like(agreed)
        disputed[groups] = ~agreed[groups]
        return disputed & (self.among > 0)

    def _pruned(self, by_partition: Verdict, by_statistics: Verdict | None = None) -> tuple[Pruned, ...]:
        """What was left out before anything was looked at."""
        left = np.where(by_partition.none, 0, self.among)
        pruned = self.by_index + _left_out("partition values", self.among, left)
        if by_statistics is None:
            return pruned
        return pruned + _left_out("statistics", left, np.where(by_statistics.none, 0, left))

    def included(self, predicate: RowPredicate, before: Selection, key: str | None) -> Selection:
        """Those of the selected rows that a predicate includes."""
        found = None if key is None else self._remembered(key)
        if found is not None:
            return found
        fields = {field.name: field for field in predicate.fields}
        partitions = self.dataset.partition_values(tuple(fields))
        if not fields.keys() - partitions:
            return self._included_row_groups(predicate, before, partitions)

        def look(group: int) -> Kept:
            bitmap = before.bitmaps.get(group)
            rows = None if bitmap is None else np.flatnonzero(bitmap)
            columns = {}
            for name, cells in self._cells(group, fields, partitions).items():
                chosen = cells if rows is None else cells.take(arrow_numbers(rows))
                columns[name] = _decoded(chosen, fields[name], rows, self.workers.max_cell_bytes)
            answers = predicate.included(columns, int(before.counts[group]))
            if bitmap is None or rows is None:
                return as_kept(answers)
            kept = np.zeros_like(bitmap)
            kept[rows[answers]] = True
            return as_kept(kept)

        return self._settled(key, _Question("predicate", before.pruned, before.counts, look))

    def _included_row_groups(
        self, predicate: RowPredicate, before: Selection, partitions: Mapping[str, Any]
    ) -> Selection:
        """A predicate that looks at partition columns alone is asked once for each row group, and nothing is read."""
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

    def _remembered(self, key: str) -> Selection | None:
        found = None if self.memory is None else self.memory.load(key, self.rows)
        if found is not None:
            _log.info("%r was remembered", found)
        return found

    def _settled(self, key: str | None, question: _Question, whole: Mapping[int, Kept] | None = None) -> Selection:
        """The selection that keeps `whole` and what is found in other row groups; remembered under the key."""
        groups = np.flatnonzero(question.asked)
        look = functools.partial(self._placed, question.look)
        began = time.perf_counter()
        pool = self.workers.pool()
        try:
            if self.memory is None or key is None:
                kept = dict(in_order(look, groups.tolist(), pool))
            else:
                together = self._looked_at_together(key, self.memory, groups, look, pool)
                if isinstance(together, Selection):
                    return together
                kept = together
        finally:
            pool.close()
            pool.join()
        seconds, read = time.perf_counter() - began, int(self.rows[groups].sum())
        _log.info("%s rows looked at in %.3g s (%.3g rows/s)", f"{read:,}", seconds, read / max(seconds, 1e-9))
        selection = selection_of({**(whole or {}), **kept}, self.rows)
        left = np.where(question.asked > 0, selection.counts, 0)
        pruned = question.pruned + _left_out(question.by, question.asked, left)
        selection = dataclasses.replace(selection, pruned=pruned)
        if self.memory is not None and key is not None:
            self.memory.save(key, selection, self.rows)
        return selection

    def _looked_at_together(
        self, key: str, memory: RememberedSelections, groups: NDArray[np.int64], look: Look, pool: Pool
    ) -> dict[int, Kept] | Selection:
        """What processes that ask the same find together, or the selection where one of them has finished it."""
        share = memory.share(key, groups, self.rows)
        kept: dict[int, Kept] = {}
        try:
            for part, found in _claimed(share, look, pool):
                share.publish(part, found)
                kept |= found
            for part in range(len(share)):
                if share.groups(part)[0] in kept:
                    continue
                theirs = share.wait(part)
                if theirs is None:
                    done = memory.load(key, self.rows)
                    if done is not None:
                        return done
                    theirs = dict(in_order(look, share.groups(part), pool))
                    share.publish(part, theirs)
                kept |= theirs
        finally:
            share.give_up()
        return kept

    def _cells(self, group: int, fields: Iterable[str], partitions: dict[str, Any]) -> dict[str, Any]:
        """The stored cells of some columns of a row group; partition columns have one value for all rows."""
        stored = [name for name in fields if name not in partitions]
        table = self.dataset.read(ReadUnit.whole(self.dataset.inventory, group, stored))
        cells = {name: only_chunk(table.column(name)) for name in stored}
        return cells | {name: pa.repeat(values[group], int(self.rows[group])) for name, values in partitions.items()}

    def _placed(self, look: Look, group: int) -> Kept:
        """`look`, with the place added to what it raises."""
        file, ordinal = self.dataset.inventory.place_of(group)
        try:
            return look(group)
        except DecodeError as problem:
            raise problem.at(file=file.path, row_group=ordinal) from problem.__cause__
        except TransformError as problem:
            raise TransformError(f"row group {ordinal} of {file.path}: {problem}") from problem.__cause__


def _left_out(by: PrunedBy, before: NDArray[np.int64], after: NDArray[np.int64]) -> tuple[Pruned, ...]:
    """What a step left out, given how many rows of each row group there were before and after; () if nothing."""
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
    """What is known of a partition column: its value in each row group, in the domain of filters."""
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


def _claimed(share: SharedScan, look: Look, pool: Pool) -> Iterator[tuple[int, dict[int, Kept]]]:
    """Parts that we claim, with what was found in them; the next one is claimed while the last one is looked at."""
    part_of: dict[int, int] = {}

    def groups() -> Iterator[int]:
        for part in share.claims():
            part_of.update(dict.fromkeys(share.groups(part), part))
            yield from share.groups(part)

    found: dict[int, Kept] = {}
    for group, kept in in_order(look, groups(), pool):
        part = part_of[group]
        found[group] = kept
        share.show_life(part)
        if group == share.groups(part)[-1]:
            yield part, found
            found = {}
