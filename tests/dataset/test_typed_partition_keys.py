"""Tests of partition keys that are dates or booleans: readers, loaders, filters and predicates."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, make_batch_reader, make_reader, open_dataset
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError
from petastore.expressions import col
from petastore.predicates import in_lambda, in_negate, in_set

DAYS = [dt.date(2026, 1, 31), None, dt.date(2026, 2, 1), dt.date(1969, 12, 31)]
FLAGS = [True, False, None, True]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write rows 0 to 3, each in its directory `day=…/ok=…`, with pyarrow, and return the URL."""
    table = pa.table({"id": range(4), "day": pa.array(DAYS, pa.date32()), "ok": pa.array(FLAGS)})
    pq.write_to_dataset(table, tmp_path, partition_cols=["day", "ok"])
    return str(tmp_path)


def ids(url: str, **asked: Any) -> list[int]:
    with make_reader(url, ["id"], filter_cache=False, **asked) as reader:
        return sorted(int(row.id) for row in reader)


def test_date_and_boolean_partition_keys_are_typed_in_rows(url: str) -> None:
    dataset = open_dataset(url)
    assert dataset.schema["day"] == UnischemaField("day", "datetime64[D]", nullable=True)
    assert dataset.schema["ok"] == UnischemaField("ok", "bool", nullable=True)
    with make_reader(url) as reader:
        rows = {int(row.id): (row.day, row.ok) for row in reader}
    days = [None if day is None else np.datetime64(day) for day in DAYS]
    assert rows == dict(enumerate(zip(days, FLAGS, strict=True)))


def test_missing_date_and_boolean_partition_keys_are_masked_in_batches(url: str) -> None:
    with make_batch_reader(url) as reader:
        (batch,) = reader.iter_batches(4)
    order = np.argsort(batch["id"])
    assert (batch["day"].dtype, batch["ok"].dtype) == (np.dtype("datetime64[D]"), np.dtype(bool))
    assert [batch["day"][order].tolist(), batch["ok"][order].tolist()] == [DAYS, FLAGS]


def test_date_partition_keys_are_nanoseconds_in_torch(url: str) -> None:
    with make_batch_reader(url, filters=col("day").is_valid() & col("ok").is_valid()) as reader:
        (batch,) = DataLoader(reader, batch_size=4, nulls={"day": 0, "ok": False, "id": 0})
    nanoseconds = {0: 20484 * 86_400 * 10**9, 3: -86_400 * 10**9}
    assert dict(zip(batch["id"].tolist(), batch["day"].tolist(), strict=True)) == nanoseconds
    assert batch["ok"].tolist() == [True, True]


DAY = dt.date(2026, 1, 31)
FILTERS: list[tuple[Any, list[int]]] = [
    (col("day") == DAY, [0]),
    (col("day") == "2026-01-31", [0]),
    (col("day") >= np.datetime64("2026-01-31", "ns"), [0, 2]),
    ([("day", "=", "2026-01-31")], [0]),
    ([("day", ">=", DAY)], [0, 2]),
    ([("day", "<", "2026-02-01")], [0, 3]),
    ([[("day", "in", ["2026-01-31", dt.date(2026, 2, 1)])]], [0, 2]),
    ([("day", "not in", ["2026-01-31"])], [2, 3]),
    ([("day", "is", None)], [1]),
    (col("ok") == True, [0, 3]),  # noqa: E712
    ([("ok", "!=", True)], [1]),
    ([("ok", "=", False), ("day", "is", None)], [1]),
    (col("ok").is_null(), [2]),
]


@pytest.mark.parametrize("filters", range(len(FILTERS)))
def test_filters_on_date_and_boolean_partition_keys_prune_directories(url: str, filters: int) -> None:
    asked, expected = FILTERS[filters]
    assert ids(url, filters=asked) == expected
    with make_reader(url, ["id"], filters=asked, filter_cache=False) as reader:
        assert reader.plan.selection is not None
        (step,) = [step for step in reader.plan.selection.pruned if step.row_groups]
    assert (step.by, step.row_groups) == ("partition values", 4 - len(expected))


@pytest.mark.parametrize("text", ["2026-01", "2026-02-30", "yesterday", "2026-01-31T00:00:00", "true"])
def test_filter_on_a_date_key_by_other_text_raises(url: str, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"filters must compare 'day' \(datetime64\[D\]\) .* Give a date"):
        ids(url, filters=[("day", "=", text)])


def test_filter_on_a_boolean_key_by_text_raises(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"filters must compare 'ok' \(bool\) .* Give True or False"):
        ids(url, filters=[("ok", "=", "true")])


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_in_set_on_typed_partition_keys_accepts_values_or_directory_text(url: str, make: Any) -> None:
    def ids_of(predicate: Any) -> list[int]:
        with make(url, ["id"], predicate=predicate, filter_cache=False) as reader:
            return sorted(int(number) for row in reader for number in np.atleast_1d(row.id))

    assert ids_of(in_set({"2026-01-31", "other"}, "day")) == [0]
    assert ids_of(in_set({DAY, None}, "day")) == [0, 1]
    assert ids_of(in_negate(in_set({"2026-01-31"}, "day"))) == [1, 2, 3]
    assert ids_of(in_set({"true"}, "ok")) == ids_of(in_set({True}, "ok")) == [0, 3]
    assert ids_of(in_set({"True", "1", 2, "false"}, "ok")) == [1]


def test_in_lambda_receives_date_partition_keys_as_numpy_datetime64(url: str) -> None:
    assert ids(url, predicate=in_lambda(["day"], lambda day: day == np.datetime64("2026-01-31"))) == [0]
    assert in_set({"2026-01-31"}, "day").do_include({"day": np.datetime64("2026-01-31")})
    assert not in_set({"2026-01-31"}, "day").do_include({"day": np.datetime64("2026-01-31", "s")})


def test_partition_key_declared_as_text_stays_text(url: str) -> None:
    fields = [UnischemaField("id", "int64"), UnischemaField("day", str, nullable=True)]
    fields.append(UnischemaField("ok", str, nullable=True))
    with make_reader(url, schema=Unischema("row", fields)) as reader:
        rows = {int(row.id): (row.day, row.ok) for row in reader}
    assert rows == {0: ("2026-01-31", "true"), 1: (None, "false"), 2: ("2026-02-01", None), 3: ("1969-12-31", "true")}


def test_partition_key_with_one_value_that_is_not_a_date_is_text(url: str) -> None:
    other = Path(url) / "day=unknown" / "ok=yes"
    other.mkdir(parents=True)
    pq.write_table(pa.table({"id": [4]}), other / "x.parquet")
    fields = open_dataset(url).schema.fields
    assert [fields[key].dtype_name for key in ("day", "ok")] == ["str", "str"]
    assert ids(url, filters=[("day", "in", ["2026-01-31", "unknown"])]) == [0, 4]
