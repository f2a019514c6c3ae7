"""Row selection of a reader: the rows that filters select, without excluded rows and bad rows.

A bad row cannot be decoded or transformed.
"""

from __future__ import annotations

from collections.abc import Sequence

from petastore.dataset import Dataset
from petastore.plan.selection import Selection
from petastore.readers.options import RowOptions, RunOptions

__all__ = ["selected_rows"]


def selected_rows(
    dataset: Dataset,
    columns: Sequence[str],
    rows: RowOptions,
    run: RunOptions,
    *,
    batched: bool = False,
    source: tuple[str, int] | None = None,
) -> Selection | None:
    """Return the rows of a dataset that a reader reads; None means all rows.

    May read data, to evaluate filters and to find rows that cannot be decoded or transformed.

    Args:
        dataset: The dataset.
        columns: Names of the columns that are read.
        rows: Options that select rows.
        run: Workers, and the transform.
        batched: Whether the reader yields batches, so that predicates and transforms receive DataFrames.
        source: For a mixture, name of the column with each row's source, and the number of this source; None without
            such a column.

    Raises:
        InvalidArgumentError: An option is invalid.
        DecodeError: A cell of a filter column cannot be decoded; or there are too many bad rows.
        TransformError: The predicate raised; or there are too many bad rows.
    """
    # Lazy imports, so that the first batch of a reader without filters arrives 20 ms sooner.
    if rows.quarantine is not None:
        from petastore.readers.bad_rows.quarantine import refuse_quarantine_inside

        refuse_quarantine_inside(rows.quarantine, [dataset])
    selection = None
    if rows.has_filter:
        from petastore.selecting.filter import select_rows

        selection = select_rows(
            dataset,
            filters=rows.filters,
            predicate=rows.predicate,
            rowgroup_selector=rows.rowgroup_selector,
            workers=run.workers,
            filter_cache=rows.filter_cache,
            batched=batched,
        )
    if rows.exclude_rows:
        from petastore.selecting.selected_groups import exclude_rows

        url = f"{dataset.url}/"  # readers of mixtures name a file by its dataset's URL and its path
        places = [(file.removeprefix(url), group, row) for file, group, row in rows.exclude_rows]
        selection = exclude_rows(selection, dataset.inventory, places)
    if rows.on_error == "raise":
        return selection
    from petastore.readers.bad_rows.scan import without_bad_rows

    fields = [dataset.schema[name] for name in columns]
    return without_bad_rows(dataset, fields, selection, rows, run, batched=batched, source=source)
