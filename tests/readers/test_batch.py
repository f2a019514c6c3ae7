"""Tests of `Batch`: a mapping of column names to zero-copy slices, with masks for missing values."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from petastore.decoding.decode import Decoded
from petastore.plan.cursor import Cursor
from petastore.readers.batch import Batch, Columns

COLUMNS = Columns(
    {
        "id": Decoded(np.arange(6), None),
        "x": Decoded(np.arange(12, dtype=np.float32).reshape(6, 2), np.array([False, True, False, False, True, False])),
        "word": Decoded(np.array(list("abcdef"), dtype=object), None),
    }
)


def test_batch_is_a_mapping_from_column_names_to_arrays() -> None:
    batch = Batch(COLUMNS, 1, 3, Cursor(0, 3))
    assert list(batch) == ["id", "x", "word"]
    assert (len(batch), "id" in batch, "ID" in batch, batch.num_rows) == (3, True, False, 2)
    assert batch["id"].tolist() == batch.columns["id"].tolist() == [1, 2]
    assert batch["word"].tolist() == ["b", "c"]
    with pytest.raises(KeyError):
        batch["ID"]


def test_batch_masks_missing_values() -> None:
    column = Batch(COLUMNS, 0, 3, Cursor())["x"]
    assert isinstance(column, np.ma.MaskedArray)
    assert np.ma.getmaskarray(column).tolist() == [[False, False], [True, True], [False, False]]


def test_batch_columns_are_zero_copy_views() -> None:
    batch = Batch(COLUMNS, 2, 5, Cursor())
    assert np.shares_memory(batch["id"], COLUMNS.by_name["id"].values)
    batch.columns["new"] = np.zeros(3)
    assert "new" not in batch


def test_batches_compare_by_identity_and_support_weakref() -> None:
    one, other = Batch(COLUMNS, 0, 2, Cursor()), Batch(COLUMNS, 0, 2, Cursor())
    assert one in [other, one]
    assert one != other
    assert one != dict(one)
    assert len({one, one, other}) == 2
    assert weakref.ref(one)() is one


def test_batch_repr_is_one_line() -> None:
    assert repr(Batch(COLUMNS, 0, 2, Cursor())) == (
        "Batch(2 rows; id: int64, x: float32[2], some missing, word: object)"
    )
    assert repr(Batch(COLUMNS, 3, 3, Cursor())).startswith("Batch(0 rows;")
