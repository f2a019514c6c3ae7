"""Tests of row and batch iterators: named tuples of rows, the state after each row, mixed iteration, reset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.codecs import NdarrayCodec
from petastore.decoding.decode import Decoded
from petastore.plan.batches.spans import Span
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.readers.assembly.assemble import AssembledSpan
from petastore.readers.batch import Columns
from petastore.readers.execution.handouts import rows_of
from petastore.schema.unischema import row_type


def span_of(sizes: list[int], columns: dict[str, Decoded]) -> AssembledSpan:
    """Return an assembled span whose batches have these numbers of rows."""
    rows = sum(sizes)
    span = Span(
        picked=GroupedRows(np.zeros(rows, np.int32), np.arange(rows), None),
        offsets=np.cumsum([0, *sizes]),
        valid=None,
        epoch=0,
        first_epoch=0,
        consumed=1 + np.arange(len(sizes)),
        ends_epoch=False,
        needed=np.zeros(1, np.int32),
        fetch=(),
        read_orders=(),
        release=(),
        most_rows=rows,
    )
    return AssembledSpan(span, Columns(columns))


def same(left: Iterable[Any], right: Iterable[Any]) -> bool:
    return all(type(one) is type(other) and np.array_equal(one, other) for one, other in zip(left, right, strict=True))


def test_row_named_tuple_has_the_values_and_types_of_its_columns() -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "datetime64[D]")
    of_words = np.empty(3, dtype=object)
    of_words[:] = ["a", None, b"c"]
    columns = {
        "number": Decoded(np.array([1.5, 2.5, 3.5], np.float32), None),
        "array": Decoded(np.arange(12, dtype=np.uint8).reshape(3, 2, 2), None),
        "maybe": Decoded(np.array([7, 8, 9]), np.array([False, True, False])),
        "word": Decoded(of_words, None),
        "day": Decoded(days, None),
    }
    rows = list(rows_of(span_of([3], columns), row_type("sample", tuple(columns))))
    expected = [
        (np.float32(1.5), np.arange(4, dtype=np.uint8).reshape(2, 2), np.int64(7), "a", days[0]),
        (np.float32(2.5), 4 + np.arange(4, dtype=np.uint8).reshape(2, 2), None, None, days[1]),
        (np.float32(3.5), 8 + np.arange(4, dtype=np.uint8).reshape(2, 2), np.int64(9), b"c", days[2]),
    ]
    assert all(same(row, values) for row, values in zip(rows, expected, strict=True))
    assert rows[1].number == np.float32(2.5)
    assert type(rows[0]) is row_type("sample", tuple(columns))


@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=8), has_missing=st.booleans(), data=st.data())
def test_row_iterator_cursor_is_after_the_batch_of_its_last_row(
    sizes: list[int], has_missing: bool, data: st.DataObject
) -> None:
    total = sum(sizes)
    missing = np.arange(total) % 2 == 0 if has_missing else None
    span = span_of(sizes, {"id": Decoded(np.arange(total), missing), "twice": Decoded(2 * np.arange(total), None)})
    rows = rows_of(span, row_type("row", ("id", "twice")))
    taken = data.draw(st.integers(0, total + 1))
    assert [row.twice for row in itertools.islice(rows, taken)] == [2 * row for row in range(min(taken, total))]
    batch_of_row = [batch for batch, size in enumerate(sizes) for _ in range(size)]
    last = min(taken, total) - 1
    if last < 0:
        assert rows.last is None
    else:
        assert rows.last == (span.span.cursor_after(batch_of_row[last]), (span.span, last, last + 1))


SCHEMA = Unischema(
    "sample",
    [
        UnischemaField("id", np.int64),
        UnischemaField("x", np.float32, (2,), NdarrayCodec()),
        UnischemaField("maybe", np.int32, nullable=True),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("rows") / "data"
    rows = ({"id": n, "x": np.full(2, n, np.float32), "maybe": None if n % 3 == 0 else np.int32(n)} for n in range(61))
    petastore.write_dataset(str(folder), SCHEMA, rows, rows_per_row_group=7)
    return str(folder)


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("shards", [1, 3])
def test_state_after_any_row_resumes_at_the_next_one(url: str, last_batch: str, shards: int) -> None:
    options: dict[str, Any] = {
        "shuffle_rows": True,
        "seed": 1,
        "last_batch": last_batch,
        "num_epochs": 2,
        "workers_count": 1,
    }
    if shards > 1:
        options |= {"cur_shard": 1, "shard_count": shards}
    with petastore.make_reader(url, **options) as reader, petastore.make_reader(url, **options) as other:
        taken, states = [], [reader.state_dict()]
        for row in reader:
            taken.append(int(row.id))
            states.append(reader.state_dict())
        # With `last_batch="even"`, leftover rows join the previous batch, so two rows share one state.
        for number in range(0, len(states), 5):
            if number and states[number] in (states[number - 1], *states[number + 1 : number + 2]):
                continue
            other.load_state_dict(states[number])
            assert [int(row.id) for row in other] == taken[number:]


def test_row_reader_may_alternate_between_rows_and_iter_batches(url: str) -> None:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        seen = [int(row.id) for row in itertools.islice(reader, 10)]
        seen += next(reader.iter_batches(9))["id"].tolist()
        seen.append(int(next(reader).id))
        assert seen == list(range(20))
        assert reader.state_dict()["position"] == 20
        seen += next(reader.iter_batches(20))["id"].tolist()
        seen += [int(row.id) for row in reader]
    assert seen == list(range(61))


def test_batch_reader_may_alternate_between_its_batches_and_iter_batches(url: str) -> None:
    with petastore.make_batch_reader(url, shuffle_row_groups=False) as reader:
        seen = next(reader).id.tolist()
        seen += next(reader.iter_batches(9))["id"].tolist()
        seen += [one for batch in reader for one in batch.id.tolist()]
    assert seen == list(range(61))


def test_loop_restarts_at_the_first_row_after_a_reset_inside_it(url: str) -> None:
    with petastore.make_reader(url, shuffle_row_groups=False, workers_count=1) as reader:
        seen = []
        for row in reader:
            seen.append(int(row.id))
            if len(seen) == 15:
                reader.reset()
    assert seen == [*range(15), *range(61)]


def test_transformed_rows_have_the_fields_of_the_transform(url: str) -> None:
    spec = TransformSpec(lambda row: {"id": row["id"], "half": row["x"][0] / 2}, [("half", np.float32, (), False)],
                         selected_fields=["half", "id"])  # fmt: skip
    with petastore.make_reader(url, shuffle_row_groups=False, transform_spec=spec) as reader:
        assert [(int(row.id), row.half) for row in reader] == [(i, np.float32(i / 2)) for i in range(61)]


def test_rows_are_counted_when_a_transform_removes_all_fields(url: str) -> None:
    spec = TransformSpec(None, removed_fields=list(SCHEMA.fields))
    with petastore.make_reader(url, transform_spec=spec) as reader:
        assert [tuple(row) for row in itertools.islice(reader, 5)] == [()] * 5
        assert reader.state_dict()["position"] == 5
        assert len(list(reader)) == 56
