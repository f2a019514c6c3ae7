"""TransformSpec: what it does to schemas, rows and DataFrames, and what it may not do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import TransformSpec, Unischema, UnischemaField
from petastore.errors import RequestError, TransformError
from petastore.readers import edit_field, transform_schema

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


def test_edited_fields_go_last_and_lose_their_codec() -> None:
    after = transform_schema(
        SCHEMA, TransformSpec(edit_fields=[edit_field("id", "float64", ()), ("y", "int8", (2,), True)])
    )
    assert list(after.fields) == ["x", "word", "id", "y"]
    assert after.y == UnischemaField("y", "int8", (2,), nullable=True)
    assert after.name == "s_transformed"


def test_removed_fields_are_gone() -> None:
    assert list(transform_schema(SCHEMA, TransformSpec(removed_fields=["x"])).fields) == ["id", "word"]


def test_selected_fields_fix_the_order() -> None:
    assert list(transform_schema(SCHEMA, TransformSpec(selected_fields=["word", "id"])).fields) == ["word", "id"]


def test_removed_and_selected_fields_exclude_each_other() -> None:
    with pytest.raises(RequestError, match="not both"):
        TransformSpec(removed_fields=["x"], selected_fields=["id"])


@pytest.mark.parametrize("spec", [TransformSpec(removed_fields=["y"]), TransformSpec(selected_fields=["y"])])
def test_a_name_that_there_is_not_is_refused(spec: TransformSpec) -> None:
    with pytest.raises(RequestError, match="'y'"):
        transform_schema(SCHEMA, spec)


@pytest.mark.parametrize("pool", ["thread", "dummy"])
def test_a_row_function_sees_and_gives_rows(url: str, pool: str) -> None:
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


def test_a_frame_function_sees_and_gives_batches(url: str) -> None:
    def halve(frame: Any) -> Any:
        frame["x"] = frame["x"] * 10
        return frame[["x", "id"]]

    spec = TransformSpec(halve, edit_fields=[("x", np.float32, (), False)], removed_fields=["word"])
    with petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader:
        batches = list(reader)
    assert [batch.x.tolist() for batch in batches] == [[0, 5, 10, 15], [20, 25, 30, 35], [40, 45]]
    assert batches[0]._fields == ("id", "x")


def test_a_spec_without_a_function_only_changes_the_schema(url: str) -> None:
    with petastore.make_reader(url, transform_spec=TransformSpec(selected_fields=["word"])) as reader:
        assert {row._fields for row in reader} == {("word",)}


def test_nulls_go_in_and_come_out_as_none(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": pa.array([1, None, 3], pa.int64())}), tmp_path / "part.parquet")
    seen: list[Any] = []

    def remember(row: dict[str, Any]) -> dict[str, Any]:
        seen.append(row["n"])
        return row

    with petastore.make_reader(str(tmp_path), transform_spec=TransformSpec(remember)) as reader:
        assert [row.n for row in reader] == [1, None, 3]
    assert seen == [1, None, 3]


BROKEN = {
    "raises": (lambda _: 1 / 0, "ZeroDivisionError"),
    "returns no dict": (lambda _: 7, "must return a dict"),
    "leaves a field out": (lambda row: {"id": row["id"]}, r"also has \['x', 'word'\]"),
    "gives another dtype": (lambda row: row | {"x": 1j}, "edit_fields"),
    "gives another shape": (lambda row: row | {"x": np.zeros(3, np.float32)}, "edit_fields"),
    "gives none": (lambda row: row | {"x": None}, "not nullable"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_function_that_breaks_its_promise_is_an_error_that_says_how(url: str, case: str) -> None:
    func, message = BROKEN[case]
    with (
        petastore.make_reader(url, transform_spec=TransformSpec(func)) as reader,
        pytest.raises(TransformError, match=message),
    ):
        next(reader)


def test_a_frame_function_may_not_change_the_number_of_rows(url: str) -> None:
    spec = TransformSpec(lambda frame: frame[frame["id"] > 2])
    with (
        petastore.make_batch_reader(url, transform_spec=spec, shuffle_row_groups=False) as reader,
        pytest.raises(TransformError, match="keep their number"),
    ):
        next(reader)


def test_the_users_own_error_is_the_cause(url: str) -> None:
    with petastore.make_reader(url, transform_spec=TransformSpec(lambda row: row["missing"])) as reader:
        with pytest.raises(TransformError) as caught:
            next(reader)
        assert isinstance(caught.value.__cause__, KeyError)
