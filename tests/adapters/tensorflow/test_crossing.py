"""Tests of batches passed to TensorFlow as stacked arrays: they equal the columns passed one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.adapters.column_plans import ColumnPlan, Run
from petastore.decoding.decode import Decoded
from petastore.readers.batch import Columns
from petastore.schema.field import UnischemaField

pytestmark = [pytest.mark.tf, pytest.mark.slow]

NAMES = ("a", "b", "c")


def elements(runs: list[Run], stacks: list[tuple[str, ...]]) -> list[dict[str, Any]]:
    """Return the batches of a dataset over these runs."""
    from petastore.adapters.tensorflow.columns import columns_of_field
    from petastore.adapters.tensorflow.crossing import Crossing
    from petastore.adapters.tensorflow.tf_dataset import cut_run

    columns = [
        column
        for name in NAMES
        for column in columns_of_field(ColumnPlan(UnischemaField(name, "int32", (2,))), rows=False)
    ]
    dataset = Crossing(columns, stacks).dataset(lambda: iter(runs), cut_run)
    return [{name: column.numpy().tolist() for name, column in batch.items()} for batch in dataset]


def runs_of_sizes(sizes: list[tuple[int, ...]], with_stacks: list[bool], *, before: int) -> Iterator[Run]:
    """Yield runs of new columns; the first `before` rows of each run belong to no batch."""
    first = 0
    for of_run, has_stack in zip(sizes, with_stacks, strict=True):
        rows = before + sum(of_run)
        whole = first + np.arange(len(NAMES) * rows * 2, dtype=np.int32).reshape(len(NAMES), rows, 2)
        first += whole.size
        columns = {name: Decoded(values, None) for name, values in zip(NAMES, whole, strict=True)}
        yield Run(Columns(columns, ((NAMES, whole),) if has_stack else ()), before, of_run)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.just((0,)), st.lists(st.integers(1, 40), min_size=1, max_size=4).map(tuple)), st.booleans()
        ),
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_batches_passed_as_stacked_arrays_equal_their_columns(
    drawn: list[tuple[tuple[int, ...], bool]], before: int
) -> None:
    runs = list(runs_of_sizes([sizes for sizes, _ in drawn], [stacked for _, stacked in drawn], before=before))
    expected = [{name: batch.column(name).tolist() for name in NAMES} for run in runs for batch in run.single()]
    assert elements(runs, [NAMES]) == expected
    assert elements(runs, []) == expected
