"""Tests of reader output: single rows or batches as named tuples, the `valid` column, default batch size."""

from __future__ import annotations

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.decoding.decode import Decoded
from petastore.plan import LastBatch
from petastore.readers.execution.handouts import most_rows, output_of
from tests.readers.execution.test_handouts import span_of

SCHEMA = Unischema("point", [UnischemaField("x", np.int64), UnischemaField("y", np.int64)])
COLUMNS = {"x": Decoded(np.arange(5), None), "y": Decoded(np.arange(5) * 2, None)}


def test_row_output_yields_the_rows_of_all_batches() -> None:
    rows = list(output_of(SCHEMA, LastBatch.EVEN, batched=False)(span_of([2, 0, 3], COLUMNS)))
    assert [tuple(row) for row in rows] == [(n, 2 * n) for n in range(5)]
    assert {type(row) for row in rows} == {SCHEMA.row_type}
    assert type(rows[0]).__name__ == "point"


def test_batch_output_yields_each_batch_as_named_tuple() -> None:
    batches = list(output_of(SCHEMA, LastBatch.EVEN, batched=True)(span_of([2, 3], COLUMNS)))
    assert [(batch.x.tolist(), batch.y.tolist()) for batch in batches] == [([0, 1], [0, 2]), ([2, 3, 4], [4, 6, 8])]


@pytest.mark.parametrize("batched", [False, True])
def test_valid_column_exists_only_with_last_batch_pad(batched: bool) -> None:
    columns = {**COLUMNS, "valid": Decoded(np.ones(5, np.bool_), None)}
    for last_batch, names in ((LastBatch.PAD, ("x", "y", "valid")), (LastBatch.EVEN, ("x", "y"))):
        span = span_of([5], {name: columns[name] for name in names})
        assert next(iter(output_of(SCHEMA, last_batch, batched=batched)(span)))._fields == names


def test_row_type_is_named_row_if_the_schema_name_is_not_an_identifier() -> None:
    schema = Unischema("of two words", list(SCHEMA))
    row = next(iter(output_of(schema, LastBatch.EVEN, batched=False)(span_of([5], COLUMNS))))
    assert type(row).__name__ == "Row"


def test_default_batch_size_is_the_largest_row_group_up_to_65536_rows() -> None:
    assert [most_rows(rows) for rows in (0, 1, 1000, 65_536, 10**9)] == [1, 1, 1000, 65_536, 65_536]
