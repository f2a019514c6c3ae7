"""Tests of datasets in each object store: write, ranged reads, credentials, invalid locations."""

from __future__ import annotations

import logging
import os
import pickle
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import petastore
from petastore.errors import (
    DatasetChangedError,
    DatasetNotFoundError,
    StorageAccessError,
    StorageConnectionError,
    StorageError,
)
from petastore.storage.files.location import open_location
from petastore.storage.ranges.fetch import ByteRange, RangeFetcher
from tests.servers.clouds import CLOUDS, Cloud, cloud_of, without_credentials_around

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("file systems of clouds keep their sessions")]
SCHEMA = petastore.Unischema("frames", [petastore.UnischemaField("id", "int64")])
ROWS = 200


@pytest.fixture(
    scope="module",
    params=[pytest.param(scheme, marks=() if scheme == "s3" else pytest.mark.slow) for scheme in CLOUDS],
)
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    folder = tmp_path_factory.mktemp("keys")
    with pytest.MonkeyPatch.context() as patch:
        without_credentials_around(patch, folder)
        with cloud_of(request.param, folder) as standing:
            for bucket in ("data", "public"):
                write(standing, f"{bucket}/frames")
            yield standing


def write(cloud: Cloud, place: str, first: int = 0, **asked: Any) -> None:
    rows = ({"id": first + number} for number in range(ROWS))
    petastore.write_dataset(f"{cloud.scheme}://{place}", SCHEMA, rows, storage_options=dict(cloud.options), **asked)


def ids(cloud: Cloud, place: str, **asked: Any) -> list[int]:
    with petastore.make_reader(f"{cloud.scheme}://{place}", seed=0, **asked) as reader:
        return sorted(row.id for row in reader)


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_cloud_dataset_round_trips(cloud: Cloud, pool: Any) -> None:
    assert ids(cloud, "data/frames", storage_options=dict(cloud.options), reader_pool_type=pool) == list(range(ROWS))


@pytest.mark.leaves_running("Arrow's file systems keep their threads")
def test_cloud_forked_child_reads_and_writes(cloud: Cloud) -> None:
    asked = {"storage_options": dict(cloud.options), "reader_pool_type": "dummy"}
    assert ids(cloud, "data/frames", **asked) == list(range(ROWS))
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            write(cloud, "data/of-a-child", first=7, mode="overwrite")
            right = [list(range(ROWS)), list(range(7, 7 + ROWS))]
            outcome = 0 if [ids(cloud, f"data/{name}", **asked) for name in ("frames", "of-a-child")] == right else 2
        finally:
            os._exit(outcome)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_cloud_public_data_is_read_without_credentials(cloud: Cloud) -> None:
    with cloud.public():
        assert ids(cloud, "public/frames", storage_options=dict(cloud.anonymous)) == list(range(ROWS))


def test_cloud_ranges_are_fetched_by_obstore_of_one_version(cloud: Cloud) -> None:
    write(cloud, "data/changing", mode="overwrite")
    url = f"{cloud.scheme}://data/changing"
    location = open_location(url, storage_options=dict(cloud.options))
    dataset = petastore.open_dataset(url, storage_options=dict(cloud.options))
    (file,) = dataset.inventory.files
    fetcher = RangeFetcher(location)
    assert fetcher is not None
    try:
        assert fetcher.client.system == "obstore"
        version = fetcher.version_of(file.path)
        assert (version.size, bool(version.strong_etag)) == (file.size, True)
        assert fetcher.fetch(file.path, version, [ByteRange(0, 4)]).read(0, 4).to_pybytes() == b"PAR1"
        location.store.put(location.join(file.path), bytes(file.size))
        with pytest.raises(DatasetChangedError) as raised:
            fetcher.fetch(file.path, version, [ByteRange(0, 4)])
        assert str(version) in str(raised.value)
        assert str(fetcher.version_of(file.path)) in str(raised.value)
        location.filesystem.delete_file(location.join(file.path))
        with pytest.raises(StorageError, match="is missing"):
            fetcher.fetch(file.path, version, [ByteRange(0, 4)])
    finally:
        fetcher.close()


def test_cloud_footers_are_cached_by_version(cloud: Cloud, tmp_path: Path) -> None:
    write(cloud, "data/bare", mode="overwrite", rows_per_file=ROWS // 4)
    location = open_location(f"{cloud.scheme}://data/bare", storage_options=dict(cloud.options))
    location.filesystem.delete_dir(f"{location.root}/_petastore")
    for misses in (4, 0):
        with petastore.make_reader(
            location.url,
            storage_options=dict(cloud.options),
            cache_type="local-disk",
            cache_location=tmp_path,
            cache_size_limit=1 << 26,
        ) as reader:
            assert sorted(row.id for row in reader) == list(range(ROWS))
            found = reader.diagnostics
        assert (found["footer_misses"], found["footer_hits"]) == (misses, 4 - misses)


def refused(cloud: Cloud, place: str, options: Any, storage_timeout: float = 60) -> StorageError:
    with pytest.raises(StorageError) as raised:
        petastore.open_dataset(
            f"{cloud.scheme}://{place}", storage_options=dict(options), storage_timeout=storage_timeout
        )
    return raised.value


def test_cloud_invalid_location_raises(cloud: Cloud) -> None:
    found = {
        "bucket": refused(cloud, "no-such-bucket/frames", cloud.options),
        "path": refused(cloud, "data/nothing", cloud.options),
        "keys": refused(cloud, "data/frames", cloud.wrong),
        "nobody": refused(cloud, "data/frames", cloud.nobody),
        "gone": refused(cloud, "data/frames", cloud.gone, 3),
    }
    assert {name: type(problem) for name, problem in found.items()} == {
        "bucket": DatasetNotFoundError,
        "path": DatasetNotFoundError,
        "keys": StorageAccessError,
        "nobody": StorageAccessError,
        "gone": StorageConnectionError,
    }
    said = {"bucket": "the bucket 'no-such-bucket' does not exist", "path": "there is nothing at that path",
            "keys": "The storage does not accept these credentials", "nobody": "No credentials were sent"}  # fmt: skip
    for name, words in said.items():
        assert [other for other, problem in found.items() if words in str(problem)] == [name]
    assert not [secret for secret in cloud.secrets if secret in repr(found)]


def test_cloud_write_creates_no_bucket(cloud: Cloud) -> None:
    with pytest.raises(DatasetNotFoundError, match="the bucket 'no-such-bucket' does not exist"):
        write(cloud, "no-such-bucket/frames")
    assert isinstance(refused(cloud, "no-such-bucket/frames", cloud.options), DatasetNotFoundError)


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["gs"], indirect=True)  # S3 and Azure sign with the keys and have no token
def test_google_token_is_refreshed_before_it_expires(cloud: Cloud) -> None:
    from google.oauth2 import service_account

    account = cloud.options["token"]
    short = {**account, "token_uri": account["token_uri"].replace("3600", "1")}
    credentials = service_account.Credentials.from_service_account_info(short, scopes=["x"])
    location = open_location(f"{cloud.scheme}://data/frames", storage_options={**cloud.options, "token": credentials})
    (path,) = [
        info.path
        for info in location.filesystem.get_file_info(fs.FileSelector("data/frames"))
        if info.path.endswith("t")
    ]
    tokens = set()
    for _ in range(3):
        assert location.filesystem.get_file_info(path).size > 0
        tokens.add(credentials.token)
        time.sleep(0.2)  # obstore caches an expired token for 0.1 s
    assert len(tokens) == 3


def test_cloud_credentials_are_never_shown_or_stored(
    cloud: Cloud, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, options = f"{cloud.scheme}://data/frames", dict(cloud.options)
    kept: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 24}
    shown: list[str] = []
    with caplog.at_level(logging.DEBUG, logger="petastore"):
        for asked in (options, dict(cloud.wrong)):
            try:
                with petastore.make_reader(url, storage_options=asked, **kept) as reader:
                    assert len(list(reader)) == ROWS
                    dataset: Any = reader.dataset
                    shown += [repr(thing) for thing in (reader, dataset, dataset.location, dataset.kept)]
                    shown += [repr(reader.diagnostics), repr(reader.state_dict()), str(reader.plan.explain(8))]
                    shown.append(repr(pickle.dumps(dataset)))
            except StorageError as problem:
                shown += traceback.format_exception(problem)
                shown += [repr(problem.__cause__), repr(problem.__context__), repr(vars(problem))]
    filesystem = petastore.open_dataset(url, storage_options=options).location.filesystem
    listed = filesystem.get_file_info(fs.FileSelector("data/frames", recursive=True))
    files = [bytes(filesystem.get(info.path, 0, info.size, None).data) for info in listed if info.is_file]
    files += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    everything = "".join([*shown, caplog.text, *(file.decode("latin-1") for file in files)])
    assert url in everything
    assert not [secret for secret in cloud.secrets if secret in everything]
