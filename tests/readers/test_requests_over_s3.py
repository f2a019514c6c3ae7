"""Tests of requests and bytes on S3: opening, reading an epoch, copies, appends, timeouts."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.errors import AbandonedThreadWarning, DatasetChangedError, ReaderClosedError, StorageTimeoutError
from petastore.readers.reader import Reader
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footers import FOOTERS
from petastore.storage.metadata.manifest import MANIFEST, read_manifest, write_manifest
from petastore.storage.row_groups.fetched_ahead import FetchedAhead
from petastore.writers.generate import generate_metadata
from tests.pace import LONG
from tests.servers.child import child_server
from tests.servers.fault_proxy import FaultProxy, Faults

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session, obstore its threads")]
KEYS: dict[str, Any] = {"key": "AKIAEXAMPLE", "secret": "hush-hush", "client_kwargs": {"region_name": "us-east-1"}}
GROUPS, ROWS = 64, 40_000
OTHERS = [f"c{number}" for number in range(40) if number != 7]
OF_OPENING = 8
"""Requests for the manifest, its footers and the listing, for any number of files."""


@dataclasses.dataclass
class Bucket:
    """A bucket behind a proxy."""

    s3: Any
    port: int
    proxy: FaultProxy

    def put(self, name: str, table: pa.Table, **options: Any) -> None:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="none", write_page_checksum=True, **options)
        self.s3.put_object(Bucket="data", Key=name, Body=sink.getvalue().to_pybytes())

    def options(self, port: int) -> dict[str, Any]:
        return {**KEYS, "endpoint_url": f"http://127.0.0.1:{port}"}

    def location(self, name: str) -> Location:
        """Return the location of the dataset without the proxy."""
        return open_location(f"s3://data/{name}", storage_options=self.options(self.port))

    def commit(self, name: str, schema: petastore.Unischema | None = None) -> None:
        generate_metadata(f"s3://data/{name}", schema, storage_options=self.options(self.port))

    def reader(self, name: str, **asked: Any) -> Reader:
        """Return a reader; the proxy's counters restart from zero."""
        self.proxy.begin(Faults())
        options = {"storage_options": self.options(self.proxy.port), "seed": 0, **asked}
        return petastore.make_batch_reader(f"s3://data/{name}", **options)

    def asked(self, word: str) -> int:
        return sum(word in head for head in self.proxy.counted.heads)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the server's folder, with a subfolder per bucket."""
    root = tmp_path_factory.mktemp("s3")
    (root / "data").mkdir()
    return root


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[int]:
    """Yield the port of a fast S3 server for this module."""
    with child_server("tests.servers.s3_server", str(root)) as port:
        yield port


@pytest.fixture
def bucket(server: int) -> Iterator[Bucket]:
    s3 = boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{server}", region_name="us-east-1",
        aws_access_key_id=KEYS["key"], aws_secret_access_key=KEYS["secret"],
    )  # fmt: skip
    with FaultProxy(server) as proxy:
        yield Bucket(s3, server, proxy)
    s3.close()


def wide(rows: int) -> pa.Table:
    """Return 40 columns, one of which has numbers that need eight bytes."""
    numbers = np.random.default_rng(0).integers(0, 1 << 40, rows)
    return pa.table({f"c{number}": numbers if number == 7 else np.zeros(rows, np.int8) for number in range(40)})


def put_wide(bucket: Bucket, files: int) -> tuple[str, pa.Table]:
    name, table = uuid.uuid4().hex, wide(GROUPS * ROWS)
    rows = GROUPS * ROWS // files
    for number in range(files):
        part = table.slice(number * rows, rows)
        bucket.put(f"{name}/part-{number:03}.parquet", part, row_group_size=ROWS, use_dictionary=OTHERS)
    return name, table


def sum_of(reader: Reader) -> int:
    with reader:
        return sum(int(batch.c7.sum()) for batch in reader)


@pytest.mark.parametrize("files", [1, 8, 64])
def test_s3_epoch_takes_one_request_per_row_group(files: int, bucket: Bucket) -> None:
    name, table = put_wide(bucket, files)
    expected = int(table["c7"].to_numpy().sum())
    assert sum_of(bucket.reader(name, schema_fields=["c7"])) == expected
    tails = 1 + (files == 1)  # the footer of 64 row groups is longer than the first guess
    assert bucket.asked(".parquet") == files * tails + GROUPS
    bucket.commit(name)
    assert sum_of(bucket.reader(name, schema_fields=["c7"])) == expected
    assert bucket.asked(".parquet") == GROUPS
    assert bucket.asked(FOOTERS) == 1
    assert bucket.proxy.counted.requests <= GROUPS + OF_OPENING
    assert bucket.proxy.counted.bytes <= 1.05 * 8 * GROUPS * ROWS


FEW, FEW_ROWS = 12, 20_000


def put_few(bucket: Bucket, rows: int = FEW_ROWS) -> str:
    name = uuid.uuid4().hex
    for number in range(FEW):
        bucket.put(f"{name}/part-{number:03}.parquet", numbered(number, rows))
    return name


def numbered(number: int, rows: int = FEW_ROWS) -> pa.Table:
    return pa.table({"id": np.arange(rows) + rows * number, "half": np.arange(rows) / 2})


def ids(reader: Reader) -> list[int]:
    with reader:
        return sorted(number for batch in reader for number in batch.id.tolist())


def test_s3_copy_with_other_etags_is_read(bucket: Bucket) -> None:
    name = put_few(bucket)
    bucket.commit(name)
    location = bucket.location(name)
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.beside is not None
    assert all(file.etag for file in manifest.inventory.files)
    files = tuple(dataclasses.replace(file, etag='"elsewhere"') for file in manifest.inventory.files)
    inventory = dataclasses.replace(manifest.inventory, files=files)
    write_manifest(
        location, dataclasses.replace(manifest, inventory=inventory, footers=manifest.beside.all_at(location))
    )
    found = ids(bucket.reader(name, reader_pool_type="dummy"))
    assert found == list(range(FEW * FEW_ROWS))
    assert bucket.asked(".parquet") <= 2 * FEW + 3  # one rejected request, and look-ups of the current version


def test_s3_file_changed_after_the_commit_raises(bucket: Bucket) -> None:
    name = put_few(bucket)
    bucket.commit(name)
    manifest = read_manifest(bucket.location(name))
    assert manifest is not None
    etag = manifest.inventory.files[5].etag
    bucket.put(f"{name}/part-005.parquet", numbered(700))
    with pytest.raises(
        DatasetChangedError, match=r"part-005\.parquet was rewritten since the dataset was listed"
    ) as told:
        ids(bucket.reader(name))
    found = bucket.s3.head_object(Bucket="data", Key=f"{name}/part-005.parquet")
    assert etag != found["ETag"]
    assert found["ETag"] in str(told.value)


def test_s3_file_changed_while_reading_is_never_mixed(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    name = uuid.uuid4().hex
    table = pa.table({"id": np.arange(100_000)})
    options: dict[str, Any] = {"row_group_size": 10_000, "use_dictionary": False, "write_statistics": False}
    bucket.put(f"{name}/a.parquet", table, **options)
    bucket.commit(name)
    monkeypatch.setattr(FetchedAhead, "begin", lambda *_, **__: None)  # else all of it may be there before it changes
    with bucket.reader(name, reader_pool_type="dummy", shuffle_row_groups=False) as reader:
        first = next(reader).id.tolist()
        bucket.put(f"{name}/a.parquet", pa.table({"id": np.arange(100_000) + 7}), **options)  # with the same footer
        with pytest.raises(DatasetChangedError, match="was rewritten"):
            first.extend(number for batch in reader for number in batch.id.tolist())
    assert first == list(range(len(first)))


@pytest.mark.parametrize("damage", ["missing", "short", "another", "noise"])
def test_s3_footers_not_in_the_manifest_are_ignored(damage: str, bucket: Bucket, root: Path, tmp_path: Path) -> None:
    name = put_few(bucket)
    bucket.commit(name)
    key = f"{name}/{FOOTERS}"
    whole = bucket.s3.get_object(Bucket="data", Key=key)["Body"].read()
    if damage == "missing":
        (root / "data" / key).unlink()
    else:
        others = {"short": whole[:100], "another": whole[:-9] + whole[9:] + bytes(9), "noise": bytes(len(whole))}
        bucket.s3.put_object(Bucket="data", Key=key, Body=others[damage])
    cache = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26}
    assert ids(bucket.reader(name, **cache)) == list(range(FEW * FEW_ROWS))
    assert bucket.asked(".parquet") <= 2 * FEW


def test_s3_small_files_take_one_request_each(bucket: Bucket) -> None:
    name = put_few(bucket, rows=100)
    assert ids(bucket.reader(name)) == list(range(FEW * 100))
    assert bucket.asked(".parquet") == 2 * FEW
    bucket.commit(name)
    assert ids(bucket.reader(name)) == list(range(FEW * 100))
    assert bucket.asked(".parquet") == FEW
    assert bucket.proxy.counted.requests <= FEW + OF_OPENING
    bucket.put(f"{name}/part-003.parquet", numbered(70, 100))
    with pytest.raises(DatasetChangedError, match=r"part-003\.parquet was rewritten"):
        ids(bucket.reader(name))


def test_s3_manifest_without_footers_takes_one_more_request_per_file(bucket: Bucket) -> None:
    name = put_few(bucket)
    bucket.commit(name)
    location = bucket.location(name)
    manifest = read_manifest(location)
    assert manifest is not None
    for etag in (None, ""):
        files = tuple(
            file if etag is None else dataclasses.replace(file, etag=etag) for file in manifest.inventory.files
        )
        inventory = dataclasses.replace(manifest.inventory, files=files)
        write_manifest(location, dataclasses.replace(manifest, inventory=inventory))
        assert ids(bucket.reader(name)) == list(range(FEW * FEW_ROWS))
        assert bucket.asked(".parquet") == 2 * FEW


def test_s3_second_reader_hits_the_disk_cache(bucket: Bucket, tmp_path: Path) -> None:
    name = put_few(bucket)
    fields = [
        petastore.UnischemaField(name, kind, nullable=True) for name, kind in (("id", "int64"), ("half", "float64"))
    ]
    bucket.commit(name, petastore.Unischema("numbers", fields))
    cache = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26}
    for chunks, footers in ((FEW, 1), (0, 0)):
        assert ids(bucket.reader(name, **cache)) == list(range(FEW * FEW_ROWS))
        # The second reader has all bytes cached, and the listing confirms the version of each file in the manifest.
        assert (bucket.asked(".parquet"), bucket.asked(FOOTERS)) == (chunks, footers)
        assert bucket.asked(f"GET /data/{name}/{MANIFEST}") == 1


@pytest.mark.parametrize("is_committed", [True, False])
def test_s3_warm_start_requests_do_not_grow_with_files(is_committed: bool, bucket: Bucket, tmp_path: Path) -> None:
    name = put_few(bucket)
    if is_committed:
        bucket.commit(name)
    cache = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26}
    for _ in range(2):
        assert ids(bucket.reader(name, **cache)) == list(range(FEW * FEW_ROWS))
        asked = bucket.asked(".parquet")
    assert asked == 0
    assert bucket.proxy.counted.requests <= OF_OPENING < FEW
    bucket.put(f"{name}/part-005.parquet", numbered(700))
    if is_committed:
        with pytest.raises(DatasetChangedError, match=r"part-005\.parquet was rewritten"):
            ids(bucket.reader(name, **cache))
    else:
        assert ids(bucket.reader(name, **cache))[-1] == 701 * FEW_ROWS - 1


def test_s3_append_keeps_the_footers_of_existing_files(bucket: Bucket) -> None:
    name = uuid.uuid4().hex
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    for first in (0, 100):
        rows = ({"id": number} for number in range(first, first + 100))
        options = bucket.options(bucket.port)
        petastore.write_dataset(
            f"s3://data/{name}", schema, rows, mode="append", rows_per_file=50, storage_options=options
        )
    location = bucket.location(name)
    manifest = read_manifest(location)
    assert manifest is not None
    assert manifest.beside is not None
    assert sorted(manifest.beside.all_at(location)) == [file.path for file in manifest.inventory.files]
    assert len(manifest.inventory.files) == 4
    assert all(file.etag for file in manifest.inventory.files)


def put_numbers(bucket: Bucket) -> str:
    """Write a file whose row groups take one request each."""
    name = uuid.uuid4().hex
    bucket.put(f"{name}/part-0.parquet", pa.table({"id": np.arange(200_000)}), row_group_size=50_000)
    return name


def test_reader_times_out_while_s3_hangs(bucket: Bucket) -> None:
    reader = bucket.reader(put_numbers(bucket), storage_timeout=2)
    bucket.proxy.begin(Faults(hangs=1.0))
    with reader, pytest.raises(StorageTimeoutError, match=r"part-0\.parquet"):
        next(reader)


def test_close_abandons_a_hanging_s3_request(bucket: Bucket) -> None:
    reader = bucket.reader(put_numbers(bucket), storage_timeout=None)
    bucket.proxy.begin(Faults(hangs=1.0))

    def consume() -> None:
        with contextlib.suppress(ReaderClosedError):
            list(reader)

    consumer = threading.Thread(target=consume)
    consumer.start()
    while not bucket.proxy.counted.faults["hangs"]:
        time.sleep(0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AbandonedThreadWarning)
        reader.stop()
        reader.join()  # the request hangs until the proxy ends
    consumer.join(LONG)
    assert not consumer.is_alive()
