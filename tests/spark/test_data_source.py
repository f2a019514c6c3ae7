"""Tests of the data source's driver methods without Spark: indexes after the commit, and failing indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.errors import DatasetChangedError, InvalidArgumentError, StorageError
from petastore.indexing import get_row_group_indexes
from petastore.spark import write_options
from petastore.spark.data_source import PetastoreSource

SCHEMA = Unischema("s", [UnischemaField("id", "int64"), UnischemaField("city", "str")])
CITIES = ["Oslo", "Rome", "Oslo", "Bern"]


def writer_of(url: Path, **options: Any) -> Any:
    source = PetastoreSource({"path": str(url), **write_options(SCHEMA, rows_per_row_group=2, **options)})
    return source.writer(SCHEMA.as_spark_schema(), False)


def written(url: Path, first: int, **options: Any) -> None:
    """Run a write job of one task; abort it if the commit fails, as Spark does."""
    writer = writer_of(url, **options)
    batch = pa.record_batch({"id": range(first, first + len(CITIES)), "city": CITIES})
    messages = [writer.write(iter([batch]))]
    try:
        writer.commit(messages)
    except BaseException:
        writer.abort(messages)
        raise


def groups_of(url: Path, city: str) -> Any:
    return get_row_group_indexes(open_dataset(url))["city"].get_row_group_indexes(city)


def test_index_fields_are_indexed_after_the_commit(tmp_path: Path) -> None:
    url = tmp_path / "s"
    written(url, 0, index_fields=["city"])
    assert groups_of(url, "Oslo") == {0, 1}
    assert groups_of(url, "Bern") == {1}
    written(url, 4, index_fields=["city", "id"])
    assert groups_of(url, "Rome") == {0, 2}
    written(url, 8)
    with pytest.raises(DatasetChangedError, match="is stale"):
        groups_of(url, "Rome")


def test_failed_index_reports_that_rows_were_committed(tmp_path: Path) -> None:
    url = tmp_path / "s"
    written(url, 0)
    (url / "_petastore" / "indexes").write_text("")  # a file instead of the directory
    with pytest.raises(StorageError) as caught:
        written(url, 4, index_fields=["city"])
    assert "The rows are committed, each once" in caught.value.__notes__[0]
    with petastore.make_reader(url) as reader:
        assert sorted(int(row.id) for row in reader) == list(range(8))


def test_index_fields_raise_before_writing_when_invalid(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"indexers must use fields of the schema \('id', 'city'\), got 'town' in"
    ):
        write_options(SCHEMA, index_fields=["town"])
    source = PetastoreSource({"path": str(tmp_path / "s"), "index_fields": "id, town"})
    with pytest.raises(
        InvalidArgumentError, match=r"indexers must use fields of the schema \('id', 'city'\), got 'town' in"
    ):
        source.writer(SCHEMA.as_spark_schema(), False)
    assert list(tmp_path.iterdir()) == []
