"""Tests of encoding rows that a function creates from items in a Spark task."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import NdarrayCodec
from petastore.errors import EncodeError
from petastore.schema import Unischema, UnischemaField
from petastore.schema.arrow import storage_schema
from petastore.spark.writing.tasks import MadeRows
from petastore.writers.encode import encode_rows

SCHEMA = Unischema(
    "steps", [UnischemaField("id", "int64"), UnischemaField("track", "int16", (None,), NdarrayCodec(), nullable=True)]
)


def rows_of(item: tuple[int, int]) -> Any:
    """Return the rows of an item `(first, rows)`: a single row if `rows` is 1, else an iterator."""
    first, rows = item
    made = [
        {"id": number} if number % 3 == 0 else {"id": number, "track": np.arange(number % 5, dtype="int16")}
        for number in range(first, first + rows)
    ]
    return made[0] if rows == 1 else iter(made)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 4)), max_size=6), st.data())
def test_rows_created_in_a_spark_task_are_encoded_in_order(items: list[tuple[int, int]], data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.sampled_from(range(len(items))), max_size=8)) if items else []
    flat = [
        row
        for number in numbers
        for row in ([rows_of(items[number])] if items[number][1] == 1 else rows_of(items[number]))
    ]
    made = pickle.loads(pickle.dumps(MadeRows(rows_of, items, SCHEMA)))  # noqa: S301 - our own
    assert pa.Table.from_batches(made(numbers), storage_schema(SCHEMA)) == pa.Table.from_batches(
        [encode_rows(flat, SCHEMA)]
    )


def test_invalid_created_row_is_named_by_its_number_in_the_task() -> None:
    made = MadeRows(lambda item: [{"id": 1}, {"id": item}], [2, "three"], SCHEMA)
    with pytest.raises(EncodeError, match="column 'id', row 3"):
        list(made([0, 1]))


@pytest.mark.parametrize("given", ["text", 7, None])
def test_created_object_that_is_not_a_row_raises(given: Any) -> None:
    with pytest.raises(EncodeError, match=f"got {type(given).__name__} for the item 'a'"):
        list(MadeRows(lambda _: given, ["a"], SCHEMA)([0]))
