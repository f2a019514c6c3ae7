"""Tests of remote row groups over an unreliable network: few requests, correct rows, bit flips, rewritten files."""

from __future__ import annotations

import contextlib
import dataclasses
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.cache import DiskCache
from petastore.dataset.opening import open_dataset
from petastore.errors import DatasetChangedError, DecodeError, MetadataError, StorageError
from petastore.storage.files.location import Location, open_location
from petastore.storage.footers.footer_cache import FooterCache
from petastore.storage.footers.footers import read_footer
from petastore.storage.ranges.pinned_files import KeptFiles
from petastore.storage.row_groups.asked_columns import Part
from petastore.storage.row_groups.fetched_ahead import place_of
from petastore.storage.row_groups.open_files import OpenFiles
from petastore.storage.row_groups.row_group import fetch_ahead, read_row_group_in_parts
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served
from tests.tier import sized

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session")]
GROUPS, ROWS, COLUMNS = 16, 2000, 40
KEYS = {"key": "AKIAEXAMPLE", "secret": "hush", "client_kwargs": {"region_name": "us-east-1"}}


@dataclasses.dataclass
class Dataset:
    """One file behind a proxy."""

    path: Path
    table: pa.Table
    location: Location
    proxy: FaultProxy
    footers: FooterCache
    files: OpenFiles
    kept: KeptFiles | None = None

    def read(self, group: int, *columns: str, **of_part: Any) -> pa.Table:
        file = read_footer(open_location(self.path.parent), "a.parquet").file
        tables = list(
            read_row_group_in_parts(
                self.location,
                file,
                group,
                [Part(columns, **of_part)],
                footers=self.footers,
                files=self.files,
                kept=self.kept,
            )
        )
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def rows(self, group: int, *columns: str) -> pa.Table:
        return self.table.slice(group * ROWS, ROWS).select(columns).combine_chunks()


@pytest.fixture(params=["http", "s3"])
def dataset(request: pytest.FixtureRequest, served: Served, proxy: FaultProxy) -> Any:
    dice = np.random.default_rng(0)
    numbers = {f"c{number}": dice.integers(0, 1 << 40, GROUPS * ROWS) for number in range(COLUMNS - 1)}
    table = pa.table({**numbers, "text": [f"label {number % 7}" for number in range(GROUPS * ROWS)]})
    path = served.root / "bucket" / "frames" / "a.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=ROWS, write_page_checksum=True, compression="none")
    if request.param == "s3":
        location = open_location("s3://bucket/frames/a.parquet", storage_options={**KEYS, "endpoint_url": proxy.url})
    else:
        location = open_location([f"{proxy.url}/bucket/frames/a.parquet"])
        location = dataclasses.replace(location, root=f"{proxy.url}/bucket/frames")
    files = OpenFiles()
    yield Dataset(path, table, location, proxy, FooterCache(), files)
    files.close()


def test_one_column_takes_one_request_per_row_group(dataset: Dataset) -> None:
    dataset.read(0, "c7")
    dataset.proxy.begin(Faults())
    for group in range(GROUPS):
        assert dataset.read(group, "c7").equals(dataset.rows(group, "c7"))
    metadata = pq.read_metadata(dataset.path)
    stored = sum(metadata.row_group(group).column(7).total_compressed_size for group in range(GROUPS))
    assert dataset.proxy.counted.requests == GROUPS
    assert dataset.proxy.counted.bytes <= 1.05 * stored


def test_epoch_over_an_unreliable_network_returns_every_row(dataset: Dataset) -> None:
    made = 0
    for seed in range(sized(full=8, quick=4)):
        dataset.proxy.begin(Faults(reset=0.05, throttled=0.05, truncated=0.02, seed=seed))
        for group in range(GROUPS):
            columns = ("c3", "c20", "text")
            assert (
                dataset.read(group, *columns, rows_at_once=700).combine_chunks().equals(dataset.rows(group, *columns))
            )
        made += sum(dataset.proxy.counted.faults.values())
    assert made > 10


def test_rewritten_remote_file_raises_and_is_never_mixed(dataset: Dataset) -> None:
    dataset.read(0, "c1")
    file = read_footer(open_location(dataset.path.parent), "a.parquet").file
    whole = bytearray(dataset.path.read_bytes())
    whole[1000] ^= 1  # same size and footer
    dataset.path.write_bytes(whole)
    with pytest.raises(DatasetChangedError, match="was rewritten since the dataset was listed"):
        list(
            read_row_group_in_parts(
                dataset.location, file, 3, [Part(("c1",))], footers=dataset.footers, files=dataset.files
            )
        )


def test_flipped_bits_in_remote_row_groups_raise_or_are_refetched(dataset: Dataset) -> None:
    dataset.read(0, "c1")
    refused = 0
    for seed in range(sized(full=4, quick=2)):
        dataset.proxy.begin(Faults(flipped=0.6, seed=seed))
        for group in range(GROUPS):
            try:
                assert dataset.read(group, "c2").equals(dataset.rows(group, "c2"))
            except (DecodeError, StorageError):
                refused += 1
    assert refused > 5


def test_flipped_bit_is_fetched_again_and_counted(dataset: Dataset) -> None:
    dataset.read(0, "c1")
    dataset.kept = KeptFiles()
    dataset.proxy.begin(Faults(first="flipped"))
    for group in range(GROUPS):
        found = dataset.read(group, "c2", "text", rows_at_once=700).combine_chunks()
        assert found.equals(dataset.rows(group, "c2", "text"))
    assert dataset.kept.asked.counts.damaged == GROUPS


def test_flipped_bit_in_a_page_header_is_fetched_again(dataset: Dataset) -> None:
    dataset.read(0, "c1")
    dataset.kept = KeptFiles()
    chunk = pq.read_metadata(dataset.path).row_group(0).column(2)
    headers = (0, chunk.data_page_offset - chunk.dictionary_page_offset)
    for place in (header + byte for header in headers for byte in range(0, 24, sized(full=1, quick=3))):
        dataset.proxy.begin(Faults(first="flipped", flip_at=place))
        assert dataset.read(0, "c2").equals(dataset.rows(0, "c2"))
    assert dataset.kept.asked.counts.damaged > sized(full=12, quick=4)


def test_footer_with_a_flipped_bit_is_fetched_again(dataset: Dataset) -> None:
    dataset.kept = KeptFiles()
    dataset.proxy.begin(Faults(first="flipped", flip_at=-2000))
    assert dataset.read(3, "c7").equals(dataset.rows(3, "c7"))
    assert dataset.kept.asked.counts.damaged == 2  # the footer and the row group
    dataset.footers.make_anew()
    dataset.proxy.begin(Faults(flipped=1.0, flip_at=-2000))
    with pytest.raises((DatasetChangedError, MetadataError), match=r"a\.parquet"):
        dataset.read(3, "c7")


@pytest.mark.parametrize("place", [-2000, -9, -5, -1])
def test_small_file_footer_with_a_flipped_bit_is_fetched_again(place: int, served: Served, proxy: FaultProxy) -> None:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    table = pa.table({f"c{number}": np.arange(100) for number in range(20)})
    pq.write_table(table, folder / "a.parquet")
    location = open_location([f"{proxy.url}/{folder.name}/a.parquet"])
    file, files, kept = read_footer(location, "a.parquet").file, OpenFiles(), KeptFiles()
    proxy.begin(Faults(first="flipped", flip_at=place))
    (found,) = read_row_group_in_parts(
        location, file, 0, [Part(("c7",))], footers=FooterCache(), files=files, kept=kept
    )
    assert found.equals(table.select(["c7"]))
    assert kept.asked.counts.damaged == 1
    files.close()


@pytest.mark.parametrize("together", [False, True])
def test_small_file_with_a_flipped_bit_is_fetched_again(together: bool, served: Served, proxy: FaultProxy) -> None:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    # The flipped bit is in the middle of the file, so it is in a page.
    table = pa.table({"id": np.arange(20_000)})
    pq.write_table(table, folder / "a.parquet", write_page_checksum=True, compression="none", use_dictionary=False)
    dataset, files = open_dataset(f"{proxy.url}/{folder.name}/a.parquet"), OpenFiles()
    (file,) = dataset.inventory.files
    proxy.begin(Faults(first="flipped"))
    part = Part(("id",))
    (found,) = (
        dataset.read_together([(file, 0)], [part], files) if together else dataset.reading(files)(file, 0, [part])
    )
    assert found.equals(table)
    assert dataset.kept.asked.counts.damaged == 1
    files.close()


def test_flipped_bit_is_not_cached(dataset: Dataset, tmp_path: Path) -> None:
    dataset.read(0, "c1")
    with DiskCache(tmp_path, limit=1 << 24) as cache:
        dataset.kept = KeptFiles(cache)
        dataset.proxy.begin(Faults(flipped=0.6))
        for group in range(GROUPS):
            with contextlib.suppress(DecodeError, StorageError):
                dataset.read(group, "c2")
        assert dataset.proxy.counted.faults["flipped"] > 0
        dataset.proxy.begin(Faults())
        for _ in range(2):
            for group in range(GROUPS):
                assert dataset.read(group, "c2").equals(dataset.rows(group, "c2"))
        assert 0 < dataset.proxy.counted.requests < GROUPS


@pytest.mark.parametrize("by_cache", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_damaged_prefetched_row_group_is_fetched_again_when_read(
    dataset: Dataset, tmp_path: Path, by_cache: bool
) -> None:
    dataset.read(0, "c1")
    file = read_footer(open_location(dataset.path.parent), "a.parquet").file
    with DiskCache(tmp_path, limit=1 << 24) as cache:
        dataset.kept = KeptFiles(cache)
        for first in ("", "flipped"):
            dataset.proxy.begin(Faults(first=first))
            columns = ("c4", "c5") if first else ("c6", "c7")
            for group in range(GROUPS):
                fetch_ahead(
                    dataset.location, file, group, columns,
                    footers=dataset.footers, files=dataset.files, kept=dataset.kept, by_cache=by_cache,
                )  # fmt: skip
                assert dataset.read(group, *columns).equals(dataset.rows(group, *columns))
                dataset.files.ahead.drop(place_of(dataset.location, file, group))
            assert dataset.proxy.counted.requests == (2 if first else 1) * GROUPS
        dataset.proxy.begin(Faults())
        for group in range(GROUPS):
            four = ("c4", "c5", "c6", "c7")
            assert dataset.read(group, *four).equals(dataset.rows(group, *four))
        assert dataset.proxy.counted.requests == 0


def test_remote_row_group_reads_first_rows_or_no_columns(dataset: Dataset) -> None:
    assert dataset.read(2, "c4", first=10).equals(dataset.rows(2, "c4").slice(0, 10))
    assert dataset.read(2).num_rows == ROWS
