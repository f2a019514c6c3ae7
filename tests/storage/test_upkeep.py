"""Tests of S3 datasets that grow, are rewritten or differ from their manifest: correct rows, or a clear error."""

from __future__ import annotations

import io
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import (
    DatasetChangedError,
    DatasetExistsError,
    DatasetNotFoundError,
    FileMissingError,
    MetadataError,
)
from petastore.schema import Unischema, UnischemaField
from petastore.writers.generate import generate_metadata
from tests.pace import patience
from tests.servers.fixtures import MOTO_KEYS

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec and obstore keep their threads and sessions")]

SCHEMA = Unischema("numbers", [UnischemaField("id", "int64"), UnischemaField("noise", "int64")])
ROWS = 60_000
"""Rows per write: three files, each larger than the read of its footer."""


class Stored:
    """A dataset in a bucket."""

    def __init__(self, port: int, bucket: str) -> None:
        import boto3

        endpoint = f"http://127.0.0.1:{port}"
        self.url = f"s3://{bucket}/numbers"
        self.options = {**MOTO_KEYS, "endpoint_url": endpoint, "client_kwargs": {"region_name": "us-east-1"}}
        self.bucket = bucket
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            region_name="us-east-1",
            aws_access_key_id=MOTO_KEYS["key"],
            aws_secret_access_key=MOTO_KEYS["secret"],
        )
        self.client.create_bucket(Bucket=bucket)

    def write(self, first: int, mode: Any = "error", rows: int = ROWS) -> None:
        petastore.write_dataset(
            self.url,
            SCHEMA,
            ({"id": number, "noise": number * 0x5851F42D4C957F2D % (1 << 63)} for number in range(first, first + rows)),
            mode=mode,
            rows_per_file=max(rows // 3, 1),
            rows_per_row_group=max(rows // 12, 1),
            storage_options=self.options,
        )

    def reader(self, **asked: Any) -> Any:
        return petastore.make_batch_reader(self.url, **{"seed": 0, "storage_options": self.options, **asked})

    def ids(self, **asked: Any) -> list[int]:
        with self.reader(**asked) as reader:
            return ids_of(reader)

    @property
    def files(self) -> list[str]:
        """The keys of the data files."""
        found = self.client.list_objects_v2(Bucket=self.bucket, Prefix="numbers/part-")["Contents"]
        return [one["Key"] for one in found]

    def table(self, key: str) -> pa.Table:
        return pq.read_table(io.BytesIO(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()))

    def put(self, key: str, table: pa.Table) -> None:
        sink = io.BytesIO()
        pq.write_table(table.replace_schema_metadata(), sink, row_group_size=ROWS // 12)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=sink.getvalue())


def ids_of(reader: Any) -> list[int]:
    return sorted(int(one) for batch in reader for one in batch.id)


def rest_of(reader: Any) -> tuple[list[int], str]:
    """Return the remaining rows, or the error message."""
    try:
        return ids_of(reader), ""
    except (FileMissingError, DatasetChangedError) as problem:
        return [], str(problem)


def from_(first: int, rows: int = ROWS) -> list[int]:
    return list(range(first, first + rows))


def moved_on(table: pa.Table) -> pa.Table:
    """Return as many rows with other values."""
    return table.set_column(0, table.schema.field("id"), pa.array(table["id"].to_numpy() + 10_000_000))


@pytest.fixture
def stored(moto: int) -> Iterator[Stored]:
    made = Stored(moto, f"bucket-{uuid.uuid4().hex[:12]}")
    made.write(0)
    yield made
    made.client.close()


def test_file_changes_without_a_manifest_are_seen_by_later_readers(stored: Stored) -> None:
    """Files are added, rewritten and deleted, and a subdirectory is added."""
    tables = [stored.table(key) for key in stored.files]
    ids = [table["id"].to_pylist() for table in tables]
    above = stored.url.removesuffix("/numbers") + "/plain"

    def found(url: str) -> list[int]:
        with petastore.make_batch_reader(url, seed=0, storage_options=stored.options) as reader:
            return ids_of(reader)

    stored.put("plain/a.parquet", tables[0])
    assert found(above) == sorted(ids[0])
    stored.put("plain/b.parquet", tables[1])
    assert found(above) == found(f"{above}/*.parquet") == sorted(ids[0] + ids[1])
    stored.put("plain/later/c.parquet", tables[2])
    assert found(f"{above}/later") == found(f"{above}/later/c.parquet") == sorted(ids[2])
    stored.put("plain/a.parquet", pa.concat_tables(tables))
    stored.client.delete_object(Bucket=stored.bucket, Key="plain/b.parquet")
    from_all = sorted(pa.concat_tables(tables)["id"].to_pylist())
    assert found(f"{above}/a.parquet") == from_all
    assert found(f"{above}/*.parquet") == from_all
    with pytest.raises(DatasetNotFoundError):
        found(f"{above}/b.parquet")


def test_files_appended_to_a_manifest_are_seen_by_later_readers(stored: Stored) -> None:
    assert stored.ids() == from_(0)
    for times in (1, 2):
        rows = ({"id": number, "noise": 0} for number in from_(times * ROWS))
        petastore.write_dataset(stored.url, SCHEMA, rows, mode="append", storage_options=stored.options)
        assert stored.ids() == from_(0, (times + 1) * ROWS)


def test_appended_rows_are_seen_by_later_readers(stored: Stored) -> None:
    with stored.reader() as before:
        stored.write(ROWS, "append")
        assert ids_of(before) == from_(0)
    assert stored.ids() == from_(0, 2 * ROWS)


def test_files_missing_in_the_manifest_warn_and_can_be_added(stored: Stored) -> None:
    stored.put("numbers/part-00009.parquet", moved_on(stored.table(stored.files[0])))
    with pytest.warns(UserWarning, match=r"1 data file.* not read: part-00009.parquet.*petastore generate-metadata"):
        assert stored.ids() == from_(0)
    generate_metadata(stored.url, storage_options=stored.options)
    assert stored.ids() == from_(0) + from_(10_000_000, ROWS // 3)


@pytest.mark.parametrize("cached", [pytest.param(False, marks=pytest.mark.slow), True])
def test_reader_during_a_rewrite_never_mixes_versions(stored: Stored, tmp_path: Path, cached: bool) -> None:
    kept = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26} if cached else {}
    with stored.reader(**kept) as reader:
        seen = [int(one) for one in next(reader).id]
        stored.write(5_000_000, "overwrite")
        rest, said = rest_of(reader)
        assert not said or "part-0" in said
        seen += rest
        assert len(set(seen)) == len(seen)
        assert set(seen) <= set(from_(0))
    assert stored.ids(**kept) == from_(5_000_000)


@pytest.mark.parametrize("cached", [pytest.param(False, marks=pytest.mark.slow), True])
def test_files_newer_than_the_manifest_raise(stored: Stored, tmp_path: Path, cached: bool) -> None:
    kept = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26} if cached else {}
    assert stored.ids(**kept) == from_(0)
    changed = stored.files[1]
    stored.put(changed, moved_on(stored.table(changed)))
    with pytest.raises((DatasetChangedError, MetadataError), match=changed.rpartition("/")[2]) as told:
        stored.ids(**kept)
    assert "`petastore generate-metadata` lists the new one" in str(told.value)


@pytest.mark.slow
def test_recreated_manifest_includes_newer_files(stored: Stored) -> None:
    changed = stored.files[1]
    table = stored.table(changed)
    sink = io.BytesIO()
    pq.write_table(pa.table({name: moved_on(table)[name] for name in table.column_names}, table.schema), sink)
    stored.client.put_object(Bucket=stored.bucket, Key=changed, Body=sink.getvalue())
    generate_metadata(stored.url, storage_options=stored.options)
    old = set(table["id"].to_pylist())
    assert stored.ids() == sorted({*from_(0)} - old | {one + 10_000_000 for one in old})


def test_deleted_file_raises_with_its_name(stored: Stored) -> None:
    gone = stored.files[2]
    stored.client.delete_object(Bucket=stored.bucket, Key=gone)
    with pytest.raises((FileMissingError, DatasetChangedError), match=gone.rpartition("/")[2]):
        stored.ids()


def test_concurrent_appends_in_one_process_keep_all_rows(stored: Stored) -> None:
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda number: stored.write(ROWS + 300 * number, "append", 300), range(3)))
    assert stored.ids() == from_(0, ROWS + 900)


@pytest.mark.slow
def test_concurrent_appends_in_two_processes_are_atomic(stored: Stored) -> None:
    script = (
        "import sys; from tests.storage.test_upkeep import Stored, ROWS; made = Stored.__new__(Stored);"
        f"made.url, made.options = {stored.url!r}, {stored.options!r};"
        "made.write(ROWS + 300 * int(sys.argv[1]), 'append', 300)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(2)]
    ended = [writer.wait(patience(60)) for writer in writers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about files that no manifest lists
        found = stored.ids()
    assert ended == [0, 0]
    possible = [from_(0) + from_(ROWS + 300 * number, 300) for number in range(2)] + [from_(0, ROWS + 600)]
    assert found in possible


@pytest.mark.slow
def test_concurrent_creation_keeps_one_dataset(stored: Stored) -> None:
    stored.url = f"s3://{stored.bucket}/fresh"

    def write(first: int) -> str:
        try:
            stored.write(first, "error", 3000)
        except DatasetExistsError as problem:
            return str(problem)
        return ""

    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(write, [0, 1_000_000]))
    winners = [first for first, text in zip((0, 1_000_000), said, strict=True) if not text]
    assert len(winners) <= 1
    if winners:
        assert stored.ids() == from_(winners[0], 3000)
    assert any("another writer" in text or "must be empty, got" in text for text in said if text), (
        "it is said what is in the way"
    )


def test_overwrite_raises_after_a_concurrent_commit(stored: Stored) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        yield {"id": np.int64(1), "noise": np.int64(2)}
        stored.write(ROWS, "append", 300)

    with pytest.raises(DatasetChangedError, match=r"another writer committed .* Write again"):
        petastore.write_dataset(stored.url, SCHEMA, rows(), mode="overwrite", storage_options=stored.options)
    assert stored.ids() == from_(0, ROWS + 300)
