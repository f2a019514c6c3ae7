"""Opening a reader of windows: a dataset, an `NGram`, and the rows with which windows begin."""

from __future__ import annotations

import dataclasses

from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.request import PlanAsk
from petastore.plan.windows.ngram import NGram
from petastore.plan.windows.windows import Windows
from petastore.readers.asked import RowsAsk, RunAsk
from petastore.readers.execution.execution import AnyPlan, Execution, Readable
from petastore.readers.execution.row_execution import execution_of_rows
from petastore.readers.reader import Reader
from petastore.readers.windows.window_execution import execution_of_windows
from petastore.readers.windows.window_starts import select_window_starts, windows_of_series
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from petastore.transforming.transform import AnyTransform, TransformSpec, as_transform_spec, schema_after
from petastore.work.workers import Workers

__all__ = ["open_window_reader"]


def open_window_reader(dataset: Dataset, ngram: NGram, ask: PlanAsk, rows: RowsAsk, run: RunAsk) -> Reader:
    """A reader of the windows of a dataset; finds their starts, which may read all timestamps.

    All that a `Reader` does with rows, it does with windows. Iterating one of `make_reader` gives dicts: offset to
    named tuple, as Petastorm does, without fields at offsets of which nothing was asked; with `last_batch="pad"` also
    `"valid"`. Batches have a column for each field, `(windows, k, *shape)`: k counts the offsets at which the field is
    asked for, in ascending order. Fields of text, bytes, decimals and free shapes are object arrays `(windows, k)`.
    Batches of one of `make_batch_reader` have as many windows as it takes for the rows of the largest row group.

    Args:
        dataset: Where.
        ngram: What a window is.
        ask: What is asked of the plan; its columns are those of the windows.
        rows: Of which rows windows are made, and where answers are remembered.
        run: How the reader is run; its function is one for rows, or for DataFrames where it is batched.

    Raises:
        InvalidArgumentError: Something that was asked for cannot be, or rows are not sorted.
        NoDataAvailableError: `last_batch="even"` with fewer windows than ranks.
    """
    ngram = _resolved(ngram, dataset.schema, run.transform)
    names = {field.name for field in ngram.get_field_names_at_all_timesteps() if isinstance(field, UnischemaField)}
    columns = [field for field in dataset.schema if field.name in names]
    if not columns:
        raise InvalidArgumentError(f"{ngram!r} names no field that {dataset.url} has, so there is nothing to read")
    ask = dataclasses.replace(ask, columns=columns)
    dataset.planned(ask)  # what cannot be is refused before anything is read
    selection = rows.selected(dataset, workers=run.workers, batched=run.batched)
    windows: Windows
    if ngram.group_by:
        starts, windows = windows_of_series(dataset, ngram, selection, workers=run.workers)
    else:
        starts = select_window_starts(dataset, ngram, selection, workers=run.workers, filter_cache=rows.filter_cache)
        windows = Windows(dataset.inventory.rows, selection, starts, ngram.length)

    def build(
        source: Readable, plan: AnyPlan, *, workers: Workers, transform: TransformSpec | None, batched: bool
    ) -> Execution:
        rows = execution_of_rows(source, plan, workers=workers, transform=transform, batched=batched)
        return execution_of_windows(rows, ngram, windows)

    plan = dataset.planned(ask, starts)
    return Reader(dataset, plan, workers=run.workers, transform=run.transform, batched=run.batched, build=build)


def _resolved(ngram: NGram, schema: Unischema, transform: AnyTransform | None) -> NGram:
    """The NGram with fields of the dataset, and with those that only a transform makes."""
    spec = as_transform_spec(transform)
    after = schema if spec is None else schema_after(schema, spec)
    return ngram.resolved(Unischema(schema.name, [*schema, *(field for field in after if field.name not in schema)]))
