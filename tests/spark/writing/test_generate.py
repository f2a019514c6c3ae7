"""Tests of Petastorm's metadata function: a schema given by its Python name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import InvalidArgumentError
from petastore.spark.writing.materialize import generate_petastorm_metadata

SCHEMA = petastore.Unischema("user", [petastore.UnischemaField("id", "int64", nullable=True)])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "schema_of_users.py").write_text(
        "from tests.spark.writing.test_generate import SCHEMA as UserSchema\nX = 7\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "users").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "users" / "0.parquet")
    return tmp_path / "users"


def test_unischema_class_is_imported_by_path(folder: Path) -> None:
    inventory = generate_petastorm_metadata(None, folder.as_uri(), "schema_of_users.UserSchema", hdfs_driver="libhdfs3")
    assert inventory.num_rows == 2
    assert petastore.open_dataset(folder).schema == SCHEMA
    assert generate_petastorm_metadata(None, folder) == inventory


@pytest.mark.parametrize("name", ["schema_of_users.Other", "schema_of_users.X", "no_such_module.X", "UserSchema", ""])
def test_unischema_class_that_is_not_a_schema_raises(folder: Path, name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="unischema_class must"):
        generate_petastorm_metadata(None, folder, name)


def test_parameter_without_effect_warns(folder: Path) -> None:
    with pytest.warns(UserWarning, match="use_summary_metadata has no effect"):
        generate_petastorm_metadata(None, folder, use_summary_metadata=True)
