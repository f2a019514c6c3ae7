"""A dataset in each object store: written, read by ranges of the planned version, and refused with the reason."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.errors import (
    DatasetChangedError,
    DatasetNotFoundError,
    StorageAccessError,
    StorageConnectionError,
    StorageError,
    StorageTimeoutError,
)
from petastore.storage.files.location import open_location
from petastore.storage.ranges.coalesced import ByteRange
from petastore.storage.ranges.open_fetcher import open_fetcher
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
def test_what_was_written_is_read(cloud: Cloud, pool: Any) -> None:
    assert ids(cloud, "data/frames", storage_options=dict(cloud.options), reader_pool_type=pool) == list(range(ROWS))


def test_who_has_no_keys_reads_what_is_public(cloud: Cloud) -> None:
    with cloud.public():
        assert ids(cloud, "public/frames", storage_options=dict(cloud.anonymous)) == list(range(ROWS))


def test_ranges_are_asked_for_by_obstore_and_of_one_version(cloud: Cloud) -> None:
    write(cloud, "data/changing", mode="overwrite")
    url = f"{cloud.scheme}://data/changing"
    location = open_location(url, storage_options=dict(cloud.options))
    dataset = petastore.open_dataset(url, storage_options=dict(cloud.options))
    (file,) = dataset.inventory.files
    fetcher = open_fetcher(location)
    assert fetcher is not None
    try:
        assert fetcher.client_of(file.path).system == "obstore"
        version = fetcher.version_of(file.path)
        assert (version.size, bool(version.strong_etag)) == (file.size, True)
        assert fetcher.fetch(file.path, version, [ByteRange(0, 4)]).read(0, 4).to_pybytes() == b"PAR1"
        store = location.store
        path = location.join(file.path)
        store.pipe_file(path, bytes(file.size))
        with pytest.raises(DatasetChangedError) as raised:
            fetcher.fetch(file.path, version, [ByteRange(0, 4)])
        assert str(version) in str(raised.value)
        assert str(fetcher.version_of(file.path)) in str(raised.value)
        store.rm_file(path)
        with pytest.raises(StorageError, match="is missing"):
            fetcher.fetch(file.path, version, [ByteRange(0, 4)])
    finally:
        fetcher.close()


def test_footers_are_kept_by_what_the_listing_calls_a_version(cloud: Cloud, tmp_path: Path) -> None:
    write(cloud, "data/bare", mode="overwrite", rows_per_file=ROWS // 4)
    location = open_location(f"{cloud.scheme}://data/bare", storage_options=dict(cloud.options))
    location.store.rm(f"{location.root}/_petastore", recursive=True)
    location.store.invalidate_cache()
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


def test_what_is_wrong_with_a_place_is_said_in_words_of_its_own(cloud: Cloud) -> None:
    found = {
        "bucket": refused(cloud, "no-such-bucket/frames", cloud.options),
        "path": refused(cloud, "data/nothing", cloud.options),
        "keys": refused(cloud, "data/frames", cloud.wrong),
        "nobody": refused(cloud, "data/frames", cloud.nobody),
        # Azure's SDK tries again for minutes by itself.
        "gone": refused(cloud, "data/frames", cloud.gone, 3 if cloud.scheme == "abfs" else 60),
    }
    assert {name: type(problem) for name, problem in found.items()} == {
        "bucket": DatasetNotFoundError,
        "path": DatasetNotFoundError,
        "keys": StorageAccessError,
        "nobody": StorageAccessError,
        "gone": StorageTimeoutError if cloud.scheme == "abfs" else StorageConnectionError,
    }
    said = {"bucket": "there is no bucket 'no-such-bucket'", "path": "there is nothing at that path",
            "keys": "These credentials are not known there", "nobody": "It was asked with no credentials"}  # fmt: skip
    for name, words in said.items():
        assert [other for other, problem in found.items() if words in str(problem)] == [name]
    assert not [secret for secret in cloud.secrets if secret in repr(found)]


def test_writing_makes_no_bucket(cloud: Cloud) -> None:
    with pytest.raises(DatasetNotFoundError, match="there is no bucket 'no-such-bucket'"):
        write(cloud, "no-such-bucket/frames")
    assert isinstance(refused(cloud, "no-such-bucket/frames", cloud.options), DatasetNotFoundError)


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["gs"], indirect=True)  # S3 and Azure sign with the keys themselves
def test_expired_google_tokens_are_renewed_while_a_dataset_is_read(cloud: Cloud) -> None:
    account = cloud.options["token"]
    short = {**account, "token_uri": account["token_uri"].replace("3600", "1")}
    location = open_location(f"{cloud.scheme}://data/frames", storage_options={**cloud.options, "token": short})
    fetcher = open_fetcher(location)
    assert fetcher is not None
    try:
        (path,) = [name for name in location.store.ls("data/frames", detail=False) if name.endswith(".parquet")]
        tokens = set()
        for _ in range(3):
            assert fetcher.version_of(path.rpartition("/")[2]).size > 0
            tokens.add(location.store.credentials.credentials.token)
        assert len(tokens) == 3
        assert fetcher.client_of(path.rpartition("/")[2]).system == "obstore"
    finally:
        fetcher.close()


def test_no_key_is_in_anything_that_is_shown_or_kept(
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
    store = petastore.open_dataset(url, storage_options=options).location.store
    files = [store.cat_file(path) for path in store.find("data/frames")]
    files += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 3
    everything = "".join([*shown, caplog.text, *(file.decode("latin-1") for file in files)])
    assert url in everything
    assert not [secret for secret in cloud.secrets if secret in everything]
