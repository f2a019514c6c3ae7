"""Tests of null values in TensorFlow: an error with the column's name, masks, or fill values; never 'None' or NaN."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import NGram
from petastore.adapters.nulls import Fill
from petastore.errors import DecodeError, InvalidArgumentError
from tests.adapters import nullable

pytestmark = [pytest.mark.tf, pytest.mark.slow]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("nullable") / "data")
    petastore.write_dataset(url, nullable.SCHEMA, map(nullable.row, range(nullable.ROWS)), rows_per_row_group=6)
    return url


@pytest.fixture
def make_tf_dataset() -> Any:
    from petastore.adapters.tensorflow import make_tf_dataset

    return make_tf_dataset


def expected(name: str, number: int) -> Any:
    value = nullable.EMPTY[name] if nullable.is_missing(name, number) else nullable.value(name, number)
    if isinstance(value, Decimal):
        value = str(value.normalize())
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, np.datetime64):
        return int(value.astype("M8[ns]").astype(np.int64))
    return value.tolist() if hasattr(value, "tolist") else value


def plain(column: Any) -> list[Any]:
    """Return the rows of a dense or ragged tensor as lists."""
    values: list[Any] = column.to_list() if hasattr(column, "to_list") else column.numpy().tolist()
    return values


@pytest.mark.parametrize("open_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_nulls_mask_marks_present_values(make_tf_dataset: Any, url: str, open_reader: Any) -> None:
    with open_reader(url, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=5, nulls="mask")
        assert list(dataset.element_spec)[:3] == ["id", "age", "age_valid"]
        assert dataset.element_spec["age_valid"].shape.as_list() == [None]
        batches = list(dataset)
    for name in nullable.NULLABLE:
        rows = [row for batch in batches for row in plain(batch[name])]
        assert rows == [expected(name, number) for number in range(nullable.ROWS)], name
        valid = [row for batch in batches for row in plain(batch[f"{name}_valid"])]
        assert valid == [not nullable.is_missing(name, number) for number in range(nullable.ROWS)], name


def test_nulls_mask_works_for_single_rows(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, shuffle_row_groups=False) as reader:
        rows = list(make_tf_dataset(reader, nulls="mask"))
    assert len(rows) == nullable.ROWS
    for number, row in enumerate(rows):
        for name in nullable.NULLABLE:
            found = row[name].numpy()
            assert (found if isinstance(found, bytes) else found.tolist()) == expected(name, number)
            assert bool(row[f"{name}_valid"]) != nullable.is_missing(name, number)


def test_fill_value_replaces_missing_values(make_tf_dataset: Any, url: str) -> None:
    nulls = {"age": -1, "name": Fill("nobody"), "price": Decimal("1.50"), "track": np.ones((1, 2), np.int16)}
    stands = {"age": -1, "name": b"nobody", "price": b"1.5", "track": [[1, 1]]}
    with petastore.make_reader(url, list(nulls), shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=23, nulls=nulls)
        assert list(dataset.element_spec) == list(nulls)
        (batch,) = dataset
    for name, value in stands.items():
        wanted = [
            value if nullable.is_missing(name, number) else expected(name, number) for number in range(nullable.ROWS)
        ]
        assert plain(batch[name]) == wanted


def test_nulls_mask_works_with_padded_columns(make_tf_dataset: Any, url: str) -> None:
    with petastore.make_reader(url, ["track"], shuffle_row_groups=False) as reader:
        (batch,) = make_tf_dataset(reader, batch_size=23, ragged="padded", nulls="mask")
    lengths = [0 if nullable.is_missing("track", number) else number % 3 for number in range(nullable.ROWS)]
    assert list(batch) == ["track", "track_lengths", "track_valid"]
    assert plain(batch["track_lengths"]) == lengths


def test_nulls_mask_has_one_entry_per_row_of_a_window(make_tf_dataset: Any, url: str) -> None:
    windows = NGram({0: ["age", "name", "id"], 1: ["age", "name", "id"]}, 10, "id")
    with petastore.make_reader(url, windows, shuffle_row_groups=False) as reader:
        dataset = make_tf_dataset(reader, batch_size=8, nulls="mask")
        assert dataset.element_spec["age_valid"].shape.as_list() == [None, 2]
        batch = next(iter(dataset))
    pairs = [(number, number + 1) for number in range(8)]
    for name in ("age", "name"):
        assert plain(batch[f"{name}_valid"]) == [[not nullable.is_missing(name, one) for one in pair] for pair in pairs]
        assert plain(batch[name]) == [[expected(name, one) for one in pair] for pair in pairs]


@pytest.mark.parametrize("name", ["age", "name", "track", "price", "at"])
@pytest.mark.parametrize("windows", [False, True])
def test_nulls_raise_by_default(make_tf_dataset: Any, url: str, name: str, windows: bool) -> None:
    import tensorflow as tf

    if windows and name == "track":
        return  # windows reject columns of variable shape
    fields: Any = NGram({0: ["id", name], 1: ["id", name]}, 10, "id") if windows else [name]
    with (
        petastore.make_reader(url, fields, shuffle_row_groups=False) as reader,
        pytest.raises((tf.errors.OpError, DecodeError), match=f"column '{name}'.*: .* missing"),
    ):
        list(make_tf_dataset(reader, batch_size=5))


def test_fill_value_that_the_column_cannot_hold_raises_at_the_call(make_tf_dataset: Any, url: str) -> None:
    with (
        petastore.make_reader(url, ["age"]) as reader,
        pytest.raises(InvalidArgumentError, match=r"value that 'age' \(int64\) can hold, got 'unknown'"),
    ):
        make_tf_dataset(reader, batch_size=5, nulls="unknown")
