"""Tests of `LocalRows`: a reader of the rows of one rank; options that would make ranks unequal raise."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError
from petastore.plan import Shard
from petastore.spark.training.spool import LocalRows

ROWS = LocalRows("/nowhere", Shard(0, 1), num_rows=10, lanes=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"dataset_url": "x"}, "the rows are those of the DataFrame"),
        ({"cur_shard": 1}, "each rank already has its rows"),
        ({"shard_count": 2}, "each rank already has its rows"),
        ({"interleave": 3}, "the distribution of rows over hosts determines it"),
        ({"filters": [("id", ">", 1)]}, "filter the DataFrame"),
        ({"predicate": print}, "filter the DataFrame"),
        ({"rowgroup_selector": None}, "filter the DataFrame"),
        (
            {"shuffle_row_groups": True},
            "shuffle_row_groups must be False for a reader of LocalRows, because row groups stay on their hosts",
        ),
        (
            {"last_batch": "pad"},
            (
                "last_batch must be 'even' or 'drop' for a reader of LocalRows, got 'pad', "
                "which would need rows of other ranks"
            ),
        ),
        (
            {"last_batch": "wrap"},
            (
                "last_batch must be 'even' or 'drop' for a reader of LocalRows, got 'wrap', "
                "which would need rows of other ranks"
            ),
        ),
        ({"last_batch": "evn"}, "evn"),
    ],
    ids=str,
)
def test_local_rows_invalid_arguments_raise_before_reading(options: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        ROWS.make_reader(**options)


@pytest.mark.parametrize("last_batch", ["even", "drop"])
def test_local_rows_are_the_rows_of_one_rank(tmp_path: Path, last_batch: Any) -> None:
    schema = Unischema("rows", [UnischemaField("id", np.int64)])
    petastore.write_dataset(str(tmp_path), schema, ({"id": n} for n in range(10)), rows_per_row_group=4)
    rows = pickle.loads(pickle.dumps(LocalRows(str(tmp_path), Shard(0, 1), num_rows=10, lanes=1)))  # noqa: S301 - our own
    with rows.make_reader(last_batch=last_batch, num_epochs=2) as reader:
        assert reader.shard == Shard(0, 1)
        assert [int(row.id) for row in reader] == list(range(10)) * 2


def test_local_rows_repr_is_one_line() -> None:
    rows = LocalRows("/scratch/x", Shard(1, 2), 1003, 12)
    assert repr(rows) == "LocalRows(rank 1 of 2, 1,003 rows in all, at /scratch/x)"
