"""Tests of `TransformSpec`: its effect on schemas, rows, columns and DataFrames, and invalid results."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.decoding.decode import Decoded
from petastore.errors import InvalidArgumentError, TransformError
from petastore.readers import edit_field, transform_schema
from petastore.readers.mixed_sources import MixedReader
from petastore.readers.random_access import RandomAccess
from petastore.transforming.transform import Takes, transform_columns
from petastore.work.pools import PoolType, Workers
from tests.arrow_values import of_arrow, of_petastore
from tests.readers import transforms_to_send as sent

SCHEMA = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("x", "float32"), UnischemaField("word", "str")])


@pytest.fixture
def url(tmp_path: Path) -> str:
    table = pa.table(
        {
            "id": pa.array(range(10), pa.int64()),
            "x": pa.array(np.arange(10) / 2, pa.float32()),
            "word": [f"w{number}" for number in range(10)],
        }
    )
    required = pa.schema([field.with_nullable(False) for field in table.schema])
    pq.write_table(table.cast(required), tmp_path / "part.parquet", row_group_size=4)
    return str(tmp_path)


def test_edit_fields_are_last_in_the_schema() -> None:
    after = transform_schema(
        SCHEMA, TransformSpec(edit_fields=[edit_field("id", "float64", ()), ("y", "int8", (2,), True)])
    )
    assert list(after.fields) == ["x", "word", "id", "y"]
    assert after.y == UnischemaField("y", "int8", (2,), nullable=True)
    assert after.name == "s_transformed"


def test_removed_fields_are_removed_from_the_schema() -> None:
    assert list(transform_schema(SCHEMA, TransformSpec(removed_fields=["x"])).fields) == ["id", "word"]


def test_selected_fields_set_the_order() -> None:
    assert list(transform_schema(SCHEMA, TransformSpec(selected_fields=["word", "id"])).fields) == ["word", "id"]


def test_removed_and_selected_fields_exclude_each_other() -> None:
    with pytest.raises(InvalidArgumentError, match="not both"):
        TransformSpec(removed_fields=["x"], selected_fields=["id"])


@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_row_transform_receives_and_returns_rows(url: str, pool: PoolType) -> None:
    spec = TransformSpec(
        lambda row: {"id": row["id"], "pair": np.array([row["x"], -row["x"]])},
        edit_fields=[("pair", np.float64, (2,), False)],
        removed_fields=["x", "word"],
    )
    with petastore.make_reader(url, reader_pool_type=pool, transform_spec=spec, shuffle_row_groups=False) as reader:
        assert list(reader.schema.fields) == ["id", "pair"]
        rows = list(reader)
    assert [int(row.id) for row in rows] == list(range(10))
    assert rows[3].pair.tolist() == [1.5, -1.5]
    assert rows[3].pair.dtype == np.float64


def test_dataframe_transform_receives_and_returns_batches(url: str) -> None:
    def halve(frame: Any) -> Any:
        frame["x"] = frame["x"] * 10
        return frame[["x", "id"]]

    spec = TransformSpec(halve, edit_fields=[("x", np.float32, (), False)], removed_fields=["word"])
    with petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader:
        batches = list(reader)
    assert [batch.x.tolist() for batch in batches] == [[0, 5, 10, 15], [20, 25, 30, 35], [40, 45]]
    assert batches[0]._fields == ("id", "x")


def test_transform_spec_without_a_function_changes_the_schema(url: str) -> None:
    with petastore.make_reader(url, transform_spec=TransformSpec(selected_fields=["word"])) as reader:
        assert {row._fields for row in reader} == {("word",)}


def test_row_transform_receives_nulls_as_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1, None, 3], pa.int64())}), tmp_path / "part.parquet")
    seen: list[Any] = []

    def remember(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["n"])
        return row

    with petastore.make_reader(str(tmp_path), transform_spec=TransformSpec(remember, edit_fields=[])) as reader:
        assert [row.n for row in reader] == [1, None, 3]
    assert sorted(seen, key=lambda number: number or 0) == [None, 1, 3]  # the workers transform in any order


BROKEN = {
    "raises": (lambda _: 1 / 0, "ZeroDivisionError"),
    "returns no dict": (lambda _: 7, "must return a dict"),
    "leaves a field out": (
        lambda row: {"id": row["id"]},
        r"the transform tests\.transforming\.test_transform\.<lambda> must return \['x', 'word'\], which the",
    ),
    "gives another dtype": (lambda row: row | {"x": 1j}, "edit_fields"),
    "gives another shape": (lambda row: row | {"x": np.zeros(3, np.float32)}, "edit_fields"),
    "gives none": (lambda row: row | {"x": None}, "not nullable"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_transform_result_that_contradicts_edit_fields_raises(url: str, case: str) -> None:
    func, message = BROKEN[case]
    with (
        petastore.make_reader(url, transform_spec=TransformSpec(func, edit_fields=[])) as reader,
        pytest.raises(TransformError, match=message),
    ):
        next(reader)


def test_dataframe_transform_must_keep_the_number_of_rows(url: str) -> None:
    spec = TransformSpec(lambda frame: frame[frame["id"] > 2])
    with (
        petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader,
        pytest.raises(TransformError, match="the transform"),
    ):
        next(reader)


def test_transform_error_has_the_users_error_as_cause(url: str) -> None:
    with petastore.make_reader(url, transform_spec=TransformSpec(lambda row: row["missing"])) as reader:
        with pytest.raises(TransformError) as caught:
            next(reader)
        assert isinstance(caught.value.__cause__, KeyError)


def test_transform_spec_raises_for_unknown_takes() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="takes must be 'row', 'dataframe', 'columns', or None for Petastorm's form, got 'table'",
    ):
        TransformSpec(takes="table")  # type: ignore[arg-type]


THINGS = Unischema(
    "things",
    [
        UnischemaField("id", "int64"),
        UnischemaField("count", "int32", nullable=True),
        UnischemaField("share", "float32", nullable=True),
        UnischemaField("when", np.dtype("M8[us]"), nullable=True),
        UnischemaField("word", str, nullable=True),
        UnischemaField("price", Decimal, nullable=True),
        UnischemaField("pose", "float32", (2,), nullable=True),
        UnischemaField("track", "int16", (None,), nullable=True),
    ],
)
MAYBE = st.booleans()


@st.composite
def things(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw rows with some missing values."""
    rows = []
    for number in range(draw(st.integers(1, 12))):
        full = {
            "count": np.int32(draw(st.integers(-(2**31), 2**31 - 1))),
            "share": np.float32("nan" if draw(MAYBE) else number / 4),
            "when": np.datetime64(draw(st.integers(-(2**50), 2**50)), "us"),
            "word": draw(st.text(max_size=3)),
            "price": Decimal(number) / 4,
            "pose": np.full(2, number, np.float32),
            "track": np.arange(draw(st.integers(0, 3)), dtype=np.int16),
        }
        rows.append({"id": np.int64(number)} | {name: None if draw(MAYBE) else value for name, value in full.items()})
    return rows


def decoded(rows: list[dict[str, Any]]) -> dict[str, Decoded]:
    """Return rows in the form of a reader's decoded columns."""
    columns = {}
    for field in THINGS:
        missing = np.array([row[field.name] is None for row in rows])
        if field.is_fixed and field.dtype != np.dtype(object):
            values = np.zeros((len(rows), *(size or 0 for size in field.shape)), field.dtype)
        else:
            values = np.empty(len(rows), dtype=object)
        for place, row in enumerate(rows):
            if row[field.name] is not None:
                values[place] = row[field.name]
        columns[field.name] = Decoded(values, missing if values.dtype != object and missing.any() else None)
    return columns


def assert_same(found: dict[str, Decoded], expected: dict[str, Decoded]) -> None:
    assert list(found) == list(expected)
    for name, column in expected.items():
        other = found[name]
        assert (other.values.dtype, len(other.values)) == (column.values.dtype, len(column.values))
        if column.values.dtype != object:
            gone = [False] * len(column.values) if column.missing is None else column.missing.tolist()
            assert ([False] * len(gone) if other.missing is None else other.missing.tolist()) == gone
            kept = ~np.array(gone)
            np.testing.assert_array_equal(other.values[kept], column.values[kept])
            continue
        for one, two in zip(other.values, column.values, strict=True):
            assert type(one) is type(two)
            np.testing.assert_array_equal(one, two)


def by_row(row: dict[str, Any]) -> dict[str, Any]:
    """Fill nulls, add and replace columns, and create variable-shape arrays."""
    return row | {
        "count": np.int32(0 if row["count"] is None else row["count"] // 2),
        "share": None if row["share"] is None or row["share"] > 1 else row["share"] + 1,
        "next": None if row["when"] is None else row["when"] + np.timedelta64(1, "s"),
        "name": f"{row['id']}",
        "track": np.zeros(int(row["id"]) % 3, np.int16),
        "norm": np.float32(0) if row["pose"] is None else np.float32(row["pose"].sum()),
    }


def by_columns(columns: dict[str, Any]) -> dict[str, Any]:
    """Do the same as `by_row` on columns."""
    free = np.empty(len(columns["id"]), dtype=object)
    free[:] = [np.zeros(number % 3, np.int16) for number in columns["id"].tolist()]
    share = columns["share"]
    return columns | {
        "count": np.ma.filled(columns["count"], 0) // 2,
        "share": np.ma.masked_where(np.ma.getmaskarray(share) | (np.ma.getdata(share) > 1), np.ma.getdata(share) + 1),
        "next": columns["when"] + np.timedelta64(1, "s"),
        "name": columns["id"].astype(str),
        "track": free,
        "norm": np.ma.filled(columns["pose"], 0).sum(axis=1),
    }


EDITED: list[Any] = [
    ("count", np.int32, (), False),
    ("share", np.float32, (), True),
    ("next", np.dtype("M8[us]"), (), True),
    ("name", str, (), False),
    ("track", np.int16, (None,), False),
    ("norm", np.float32, (), False),
]


@given(rows=things(), batched=st.booleans())
def test_column_transform_equals_row_transform(rows: list[dict[str, Any]], batched: bool) -> None:
    offsets = np.array([0, *{len(rows) // 2, len(rows)} - {0}])
    offsets.sort()
    made = []
    forms: list[tuple[Any, Takes]] = [(by_row, "row"), (by_columns, "columns")]
    for func, takes in forms:
        spec = TransformSpec(func, EDITED, takes=takes)
        made.append(transform_columns(decoded(rows), offsets, transform_schema(THINGS, spec), spec, batched=batched))
    assert_same(made[1], made[0])


@pytest.mark.parametrize("takes", ["row", "dataframe", "columns"])
@given(rows=things(), batched=st.booleans())
def test_transform_keeps_other_columns_unchanged(takes: Takes, rows: list[dict[str, Any]], batched: bool) -> None:
    spec = TransformSpec(lambda given: given, takes=takes)
    offsets = np.array(sorted({0, len(rows) // 3, len(rows)}))
    columns = decoded(rows)
    made = transform_columns(columns, offsets, transform_schema(THINGS, spec), spec, batched=batched)
    assert_same(made, columns)


@pytest.mark.parametrize("open_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_transforms_with_each_takes_value_work_in_row_and_batch_readers(tmp_path: Path, open_reader: Any) -> None:
    days = pa.array([1, None, 3], pa.int64()).cast(pa.timestamp("us"))
    table = pa.table({"n": pa.array([2**53 + 1, None, 3], pa.int64()), "when": days, "word": ["a", None, "c"]})
    pq.write_table(table, tmp_path / "part.parquet")
    given: dict[str, Any] = {}

    def look(rows: Any) -> Any:
        given[takes] = rows.copy()
        return rows

    read = {}
    for takes in ("row", "dataframe", "columns"):
        spec = TransformSpec(look, takes=takes)
        with open_reader(str(tmp_path), transform_spec=spec, shuffle_row_groups=False) as reader:
            (batch,) = reader.iter_batches(3)
            read[takes] = {name: batch[name].tolist() for name in batch}
    assert read["row"]["n"] == [2**53 + 1, None, 3]
    assert read["row"]["word"] == ["a", None, "c"]
    assert read["row"] == read["dataframe"] == read["columns"]
    assert isinstance(given["columns"]["n"], np.ma.MaskedArray)
    assert str(given["dataframe"]["n"].dtype) == "Int64"
    assert given["dataframe"]["when"].isna().tolist() == [False, True, False]
    assert sorted(given["row"]) == ["n", "when", "word"]


def test_nan_in_a_new_column_of_a_dataframe_transform_is_null() -> None:
    def logs(frame: Any) -> Any:
        frame["share"] = frame["share"] * np.nan
        frame["new"] = frame["share"]
        return frame

    spec = TransformSpec(logs, [("new", np.float32, (), True)], selected_fields=["share", "new"])
    columns = decoded([dict.fromkeys(THINGS.fields) | {"id": 0}, dict.fromkeys(THINGS.fields) | {"id": 1, "share": 2}])
    made = transform_columns(columns, np.array([0, 2]), transform_schema(THINGS, spec), spec, batched=True)
    assert made["share"].missing is not None
    assert made["share"].missing.tolist() == [True, False]
    assert np.isnan(made["share"].values[1])
    assert made["new"].missing is not None
    assert made["new"].missing.all()


def test_column_transform_may_assign_to_masked_values() -> None:
    def first_is_there(columns: dict[str, Any]) -> dict[str, Any]:
        columns["count"][0] = 5
        return columns

    columns = decoded([dict.fromkeys(THINGS.fields) | {"id": number} for number in range(2)])
    spec = TransformSpec(first_is_there, takes="columns")
    made = transform_columns(columns, np.array([0, 2]), transform_schema(THINGS, spec), spec, batched=True)["count"]
    assert made.missing is not None
    assert made.missing.tolist() == [False, True]
    assert made.values[0] == 5


MOMENT = np.datetime64("2020-01-02T03:04:05.000006", "us")
ZONED = dt.datetime(2020, 1, 2, 4, 4, 5, 6, tzinfo=dt.timezone(dt.timedelta(hours=1)))


def moments() -> dict[str, Any]:
    """Return one moment and a missing value in all types of Python, NumPy and pandas."""
    import pandas as pd

    return {
        "numpy": [MOMENT, np.datetime64("NaT")],
        "python": [MOMENT.item(), None],
        "a zone": [ZONED, None],
        "pandas": [pd.Timestamp(MOMENT), pd.NaT],
        "an array": np.array([MOMENT, "NaT"], "M8[ns]"),
        "a series": pd.Series([MOMENT, None]),
        "a series of instants": pd.Series([ZONED, None]),
        "a series of objects": pd.Series([ZONED, None], dtype=object),
    }


@pytest.mark.parametrize("kind", list(moments()))
def test_transform_may_return_times_of_any_numpy_pandas_or_python_type(kind: str) -> None:
    import pandas as pd

    given = moments()[kind]
    is_series = isinstance(given, pd.Series)
    spec = TransformSpec(
        lambda _: pd.DataFrame({"at": given}) if is_series else {"at": given},
        [("at", np.dtype("M8[us]"), (), True)],
        selected_fields=["at"],
        takes="dataframe" if is_series else "columns",
    )
    columns = {"id": Decoded(np.arange(2), None)}
    made = transform_columns(columns, np.array([0, 2]), transform_schema(SCHEMA, spec), spec, batched=True)["at"]
    assert made.values[0] == MOMENT
    assert made.missing is not None
    assert made.missing.tolist() == [False, True]


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_dataframe_transform_keeps_stored_time_zones(pool: PoolType, tmp_path: Path) -> None:
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
    pq.write_table(pa.table({"at": pa.array([noon, None], pa.timestamp("us", "Europe/Oslo"))}), tmp_path / "a.parquet")
    spec = TransformSpec(sent.hours, [("hour", np.int32, (), True)])
    with petastore.make_batch_reader(str(tmp_path), transform_spec=spec, reader_pool_type=pool) as reader:
        (batch,) = list(reader)
    assert batch.hour.tolist() == [13, None]
    assert batch.at.tolist() == [noon.replace(tzinfo=None), None]
    spec = dataclasses.replace(spec, takes="dataframe")
    assert RandomAccess(petastore.open_dataset(tmp_path), transform=spec).take([0])["hour"].tolist() == [13]
    sources: list[Any] = [str(tmp_path), str(tmp_path)]
    with petastore.make_mixed_reader(sources, [1, 1], transform_spec=spec, reader_pool_type=pool) as mixed:
        assert {row.hour for row in mixed} == {13, None}


BROKEN_COLUMNS = {
    "raises": (lambda _: 1 / 0, "ZeroDivisionError"),
    "returns no dict": (lambda columns: list(columns.values()), "must return a dict of columns"),
    "leaves a field out": (
        lambda columns: {"id": columns["id"]},
        r"the transform tests\.transforming\.test_transform\.<lambda> must return \['x', 'word'\], which the",
    ),
    "gives another dtype": (
        lambda columns: columns | {"x": columns["x"] * 1j},
        r"must return 'x' as float32 of shape \(\), got complex64 of shape \(\)",
    ),
    "gives another shape": (
        lambda columns: columns | {"x": np.zeros((4, 3))},
        r"must return 'x' as float32 of shape \(\), got float64 of shape \(3,\)",
    ),
    "gives fewer rows": (
        lambda columns: columns | {"x": columns["x"][:-1]},
        r"the transform tests\.transforming\.test_transform\.<lambda> must return 4 rows, as many as it",
    ),
    "gives a number": (
        lambda columns: columns | {"x": 7.0},
        r"the transform tests\.transforming\.test_transform\.<lambda> must return 'x' as an array with one",
    ),
    "gives none": (
        lambda columns: columns | {"x": np.ma.masked_equal(columns["x"], 1)},
        "'x', which .* not nullable.*; the row has id=2, x=1.0, word='w2'",
    ),
    "gives numbers for text": (
        lambda columns: columns | {"word": ["a", "b", 3, "d"]},
        r"the transform tests\.transforming\.test_transform\.<lambda> must return 'word' as str, got int\.",
    ),
}


@pytest.mark.parametrize("case", BROKEN_COLUMNS)
def test_column_transform_with_an_invalid_result_raises(url: str, case: str) -> None:
    func, message = BROKEN_COLUMNS[case]
    spec = TransformSpec(func, edit_fields=[], takes="columns")
    with (
        petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader,
        pytest.raises(TransformError, match=message) as caught,
    ):
        next(reader)
    assert "test_transform.<lambda>" in str(caught.value)


def test_transform_error_names_the_function_and_row(url: str) -> None:
    def no_fives(row: dict[str, Any]) -> dict[str, Any]:
        if row["id"] == 5:
            raise ValueError("five")
        return row

    with (
        petastore.make_reader(url, transform_spec=TransformSpec(no_fives), shuffle_row_groups=False) as reader,
        pytest.raises(TransformError, match=r"no_fives raised ValueError: five; the row has id=5, x=2\.5, word='w5'"),
    ):
        list(reader)


@pytest.mark.parametrize("takes", ["row", "dataframe", "columns"])
@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_window_rows_are_transformed_with_each_takes_value(url: str, pool: PoolType, takes: Takes) -> None:
    def next_id(rows: Any) -> Any:
        rows["after"] = rows["id"] + 1
        return rows

    windows = petastore.NGram({0: ["id"], 1: ["after"]}, 1, "id")
    spec = TransformSpec(next_id, [("after", np.int64, (), False)], takes=takes)
    with petastore.make_reader(
        url, windows, reader_pool_type=pool, transform_spec=spec, shuffle_row_groups=False
    ) as reader:
        found = [(int(window[0].id), int(window[1].after)) for window in reader]
    assert found == [(number, number + 2) for number in range(9)]


def test_mixture_sources_may_have_different_takes_values(url: str) -> None:
    columns = TransformSpec(lambda given: {"id": given["id"] + 100}, selected_fields=["id"], takes="columns")
    rows = TransformSpec(lambda row: {"id": row["id"]}, selected_fields=["id"])
    with petastore.make_mixed_reader([url, url], [1, 1], seed=1, stop="all_exhausted") as planned:
        mixture = planned.plan
    datasets = [petastore.open_dataset(url)] * 2
    with MixedReader(datasets, mixture, workers=Workers("thread", 2), transforms=[columns, rows]) as reader:  # type: ignore[arg-type]
        read = [int(row.id) for row in reader]
    assert {*range(10), *range(100, 110)} == set(read)


@pytest.mark.parametrize("batched", [False, True])
def test_edit_fields_apply_without_a_function(batched: bool) -> None:
    spec = TransformSpec(edit_fields=[("id", np.float32, (), False), ("track", np.float32, (2,), False)])
    tracks = np.empty(3, object)
    tracks[:] = [np.array([row, row + 1.0]) for row in range(3)]
    columns = {name: Decoded(values, None) for name, values in (("track", tracks), ("id", np.arange(3)), ("x", tracks))}
    before = Unischema("s", [UnischemaField(name, "float64", (None,)) for name in columns])
    made = transform_columns(columns, np.array([0, 3]), transform_schema(before, spec), spec, batched=batched)
    assert made["x"].values is tracks
    assert made["id"].values.dtype == np.float32
    assert made["track"].values.dtype == np.float32
    assert made["track"].values.tolist() == [[0, 1], [1, 2], [2, 3]]


def test_edit_fields_without_a_function_raise_for_values_of_another_shape(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [7, 8], "track": [[1.0, 2.0], [1.0, 2.0, 3.0]]}), tmp_path / "a.parquet")
    spec = TransformSpec(edit_fields=[("track", np.float64, (2,), False)])
    message = r"without a function must return 'track' as float64 of shape \(2,\), got float64 of shape \(3,\).* id=8"
    with (
        petastore.make_batch_reader(str(tmp_path), transform_spec=spec) as reader,
        pytest.raises(TransformError, match=message),
    ):
        list(reader)


def test_unknown_removed_field_warns_and_selected_field_raises(url: str) -> None:
    with (
        pytest.warns(
            UserWarning, match=r"must name fields \('id', 'x', 'word'\), got 'nope', which have no effect"
        ) as told,
        petastore.make_reader(url, transform_spec=TransformSpec(dict, removed_fields=["nope", "x"])) as reader,
    ):
        assert [field.name for field in reader.schema] == ["id", "word"]
    assert len(told) == 1
    with pytest.raises(
        InvalidArgumentError,
        match=r"TransformSpec must name fields that exist after the transform \('id', 'x', 'word'\), got 'nope'",
    ):
        petastore.make_reader(url, transform_spec=TransformSpec(dict, selected_fields=["nope"]))


@pytest.mark.parametrize("pool", ["thread", "process"])
@pytest.mark.parametrize("takes", ["row", "columns"])
def test_transform_keeps_nulls_inside_lists(tmp_path: Path, pool: PoolType, takes: Takes) -> None:
    columns = {
        "pair": pa.array([[1, 2], [3, None], None, [2**60 + 1, 6]], pa.list_(pa.int64(), 2)),
        "ints": pa.array([[1], [2, None], None, []]),
        "nested": pa.array([[[1]], [[2, 4], [3]], None, [None, [1]]]),
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    spec = TransformSpec(dict, takes=takes)
    with petastore.make_batch_reader(
        str(tmp_path), shuffle_row_groups=False, transform_spec=spec, reader_pool_type=pool
    ) as reader:
        (batch,) = reader.iter_batches(4)
        assert {name: of_petastore(batch[name]) for name in columns} == {
            name: of_arrow(column) for name, column in columns.items()
        }
