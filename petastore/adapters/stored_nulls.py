"""Missing values that the footers tell of: rejected when a loader is made, and not after some of its batches."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np

from petastore.dataset import Dataset
from petastore.errors import DecodeError, StorageError
from petastore.plan.plan import Plan
from petastore.storage.footers.column_chunks import ChunkStatistics, chunk_statistics

__all__ = ["refuse_stored_nulls"]

_MOST_FILES = 256
"""Footers of more files are not looked at: a loader must be made quickly. Their missing values are found in batches."""


def refuse_stored_nulls(reader: Any, filled: Collection[str]) -> None:
    """Reject a reader that is sure to give missing values where nothing stands for them.

    Columns of numbers and times are looked at, unless a transform may fill them. What the footers do not tell, or would
    have to be fetched for, is found when the batch is made.

    Args:
        reader: A reader, or what has its `dataset`, `plan`, `schema` and `transform`.
        filled: Names of the columns for which `nulls=` says what stands in the place of missing values.

    Raises:
        DecodeError: Statistics of a row group that is read whole count missing values; the place is named.
    """
    plan, dataset = reader.plan, getattr(reader, "dataset", None)  # of a mixture, footers tell of more than is read
    if not isinstance(plan, Plan) or not isinstance(dataset, Dataset):
        return
    if reader.transform is not None or getattr(reader, "ngram", None) is not None:
        return
    fields = [
        field
        for field in reader.schema
        if field.nullable and field.is_scalar and field.dtype.kind != "O" and field.name not in filled
    ]
    if not fields:
        return
    inventory, rows = plan.inventory, plan.inventory.rows
    is_whole = np.ones(len(rows), np.bool_) if plan.selection is None else plan.selection.counts == rows
    for number, groups in itertools.islice(_by_file(inventory.file, is_whole), _MOST_FILES):
        file = inventory.files[number]
        footer = dataset.footers.kept(dataset.location, file)
        if footer is None:
            if dataset.is_fetched:
                continue
            try:
                footer = dataset.footers.get(dataset.location, file)
            except StorageError:  # the file may be on the host of another rank; reading it raises the error if needed
                continue
        leaves = {field.name: footer.leaves.get(field.name, range(0)) for field in fields}
        wanted = {own[0] for own in leaves.values() if len(own) == 1}
        known = chunk_statistics(footer.encoded, wanted, source=file.path)
        for group, field in itertools.product(groups, fields):
            ordinal, own = int(inventory.ordinal[group]), leaves[field.name]
            nulls = known[ordinal].get(own[0], ChunkStatistics()).nulls if len(own) == 1 else None
            if nulls:
                raise DecodeError(
                    f"{nulls:,} of {rows[group]:,} values are missing, and a tensor cannot say so. Set nulls= of "
                    "DataLoader or make_tf_dataset, fill the column in a transform_spec, or leave it out with "
                    "schema_fields",
                    column=field.name,
                    file=file.path,
                    row_group=ordinal,
                )


def _by_file(files: Any, is_whole: Any) -> Any:
    """Yield the number of each file, ascending, with its row groups that are read whole."""
    whole = np.flatnonzero(is_whole).tolist()
    return itertools.groupby(whole, key=lambda group: int(files[group])) if whole else iter(())
