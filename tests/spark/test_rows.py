"""Tests of `dict_to_spark_row` and `insert_explicit_nulls`: encoding single rows as Petastorm's users do."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest

from petastore.codecs import NdarrayCodec
from petastore.errors import EncodeError, MissingExtraError
from petastore.schema import Unischema, UnischemaField
from petastore.spark import dict_to_spark_row, insert_explicit_nulls, local_session
from tests.spark.scenario import SCHEMA, row_of

USER = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("age", "int32", nullable=True)])


def test_spark_row_has_encoded_cells_in_schema_order() -> None:
    row = dict_to_spark_row(SCHEMA, dict(reversed(row_of(3).items())))
    assert row.__fields__ == list(SCHEMA.fields)
    for field, cell in zip(SCHEMA, row, strict=True):
        if field.codec is not None and cell is not None:
            assert cell == field.codec.encode(field, row_of(3)[field.name])
        assert not isinstance(cell, np.generic | np.ndarray), field.name


def test_dict_to_spark_row_does_not_change_its_argument() -> None:
    given = {"id": 1}
    assert dict_to_spark_row(USER, given).age is None
    assert given == {"id": 1}


def test_insert_explicit_nulls_changes_the_row_in_place() -> None:
    row = {"id": 1}
    insert_explicit_nulls(USER, row)
    assert row == {"id": 1, "age": None}


@pytest.mark.parametrize(
    ("row", "column", "part"),
    [
        ({}, "id", "got a row without it"),
        ({"id": None}, "id", "it is not nullable, got None"),
        ({"id": 1, "name": "Ada"}, "name", "the row must have only fields of schema 'user' ('id', 'age'), got 'name'"),
        ({"id": "1"}, "id", "int64"),
        ({"id": 2**63}, "id", "int64"),
        ({"id": 1, "age": 2.5}, "age", "2.5"),
        ([("id", 1)], None, "a row must be a dict, got list"),
    ],
)
def test_dict_to_spark_row_raises_for_invalid_rows(row: dict[str, object], column: str | None, part: str) -> None:
    with pytest.raises(EncodeError) as caught:
        dict_to_spark_row(USER, row)
    assert caught.value.column == column
    assert part in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_dict_to_spark_row_checks_array_shapes() -> None:
    schema = Unischema("s", [UnischemaField("m", "uint8", (2, 2), NdarrayCodec())])
    with pytest.raises(EncodeError, match="'m'"):
        dict_to_spark_row(schema, {"m": np.zeros((2, 3), np.uint8)})


def test_dict_to_spark_row_pickles_by_reference() -> None:
    function, schema = pickle.loads(pickle.dumps((dict_to_spark_row, SCHEMA)))  # noqa: S301 - our own bytes
    assert function is dict_to_spark_row
    assert schema == SCHEMA


def test_missing_pyspark_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name == "pyspark" or name.startswith("pyspark.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'petastore\[spark\]'"):
        dict_to_spark_row(USER, {"id": 1})
    with pytest.raises(MissingExtraError, match=r"local_session needs the package 'pyspark'"):
        local_session()
