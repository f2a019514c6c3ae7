"""What a pass loads next is fetched while workers decode: in its order, as far as bytes allow, and nothing else."""

from __future__ import annotations

import dataclasses
import re
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import petastore
from petastore.cache import DiskCache
from petastore.errors import DatasetChangedError, StorageError
from petastore.inventory import Inventory
from petastore.plan.batches.load_order import LoadOrder
from petastore.plan.cursor import Cursor
from petastore.readers.loaded.fetch_ahead import FetchAhead
from petastore.storage.ranges.kept_files import KeptFiles
from petastore.storage.row_groups.fetched_ahead import KeptIn
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

GROUPS, FILES, ROWS = 24, 3, 40_000
NOISE = 0xF00D
HALF = 1 << 23
"""The limit of a cache that has room for half of the data, and what else counts there."""


@dataclasses.dataclass
class Noted:
    """A dataset and its files, of which is noted what is fetched, in which order, and what is there."""

    inventory: Inventory
    fetched: list[int] = dataclasses.field(default_factory=list)
    held: set[int] = dataclasses.field(default_factory=set)
    kept_in: set[KeptIn] = dataclasses.field(default_factory=set)
    location: None = None
    kept: KeptFiles = dataclasses.field(default_factory=KeptFiles)

    @property
    def ahead(self) -> Noted:
        return self

    def fetch_ahead(
        self, _file: object, ordinal: int, columns: tuple[str, ...], files: object, kept_in: KeptIn
    ) -> None:
        self.kept_in.add(kept_in)
        assert columns == ("id",)
        assert files is self
        assert ordinal not in self.held
        self.fetched.append(ordinal)
        self.held.add(ordinal)

    def drop(self, place: tuple[int, str, int]) -> None:
        self.held.remove(place[2])


def following(
    sizes: list[int],
    *,
    most_bytes: int,
    first_group: int = 0,
    cache: DiskCache | None = None,
    kept_in: KeptIn = KeptIn.MEMORY,
) -> tuple[Noted, FetchAhead]:
    noted = Noted(Inventory.of_rows(sizes, bytes_per_row=1), kept=KeptFiles(cache))
    asked: Any = noted
    return noted, FetchAhead(asked, first_group, ["id"], asked, most_bytes=most_bytes, kept_in=kept_in)


def order_of(groups: list[int], *, sure: int | None = None) -> LoadOrder:
    return LoadOrder(np.array(groups, np.int64), len(groups), Cursor(1), len(groups) if sure is None else sure)


def test_as_much_is_fetched_as_bytes_allow_in_the_order_of_loads() -> None:
    noted, ahead = following([10] * 6, most_bytes=25)
    progress = ahead.announced(order_of([5, 3, 1, 0, 2, 4]))
    progress.move_to(0, 2)  # the first one is loaded by itself, and nothing is fetched until it is there
    assert noted.fetched == []
    progress.move_to(1, 1)
    assert noted.fetched == [3, 1, 0]
    progress.move_to(1, 2)
    assert noted.fetched == [3, 1, 0]
    progress.move_to(2, 3)  # group 3 is loaded
    assert (noted.fetched, noted.held) == ([3, 1, 0, 2], {1, 0, 2})
    progress.move_to(6, 6)
    assert noted.held == set()
    progress.close()


def test_nothing_is_fetched_that_may_not_be_loaded_nor_what_is_of_others() -> None:
    noted, ahead = following([10] * 3, most_bytes=1000, first_group=4)
    progress = ahead.announced(order_of([0, 3, 4, 1, 6, 7, 5], sure=5))
    progress.move_to(1, 1)
    assert noted.fetched == [0, 2]
    progress.close()
    assert noted.held == set()


def test_what_was_fetched_stays_from_one_order_to_the_next() -> None:
    noted, ahead = following([10] * 4, most_bytes=30)
    before = ahead.announced(dataclasses.replace(order_of([0, 1, 2, 3]), first=2))
    before.move_to(2, 2)
    assert noted.fetched == [2, 3]
    after = ahead.announced(order_of([2, 3, 1, 0]))
    after.move_to(0, 0)
    before.close()
    assert (noted.fetched, noted.held) == ([2, 3, 1], {1, 2, 3})
    after.close()
    assert noted.held == set()


def test_a_row_group_is_fetched_for_each_of_its_loads() -> None:
    noted, ahead = following([10] * 2, most_bytes=1000)
    progress = ahead.announced(order_of([1, 0, 1, 0, 1]))
    progress.move_to(1, 1)
    assert noted.fetched == [0, 1]
    progress.move_to(2, 2)
    assert noted.fetched == [0, 1, 0]
    progress.move_to(3, 3)
    assert noted.fetched == [0, 1, 0, 1]
    later = ahead.announced(order_of([0, 1]))  # and in the next epoch, too
    later.move_to(0, 0)
    assert noted.fetched == [0, 1, 0, 1]
    progress.close()
    later.move_to(0, 0)
    assert noted.fetched == [0, 1, 0, 1, 0, 1]
    later.close()
    assert noted.held == set()


def test_what_a_cache_keeps_is_fetched_for_the_first_of_its_loads_alone(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=1 << 20) as cache:
        noted, ahead = following([10] * 3, most_bytes=1000, cache=cache, kept_in=KeptIn.CACHE)
        progress = ahead.announced(order_of([1, 0, 1, 0, 2]))
        progress.move_to(1, 1)  # row group 1 was loaded before it was known to be there
        assert noted.fetched == [0, 1, 2]
        progress.move_to(2, 3)
        later = ahead.announced(order_of([2, 1, 0]))
        later.move_to(0, 0)
        progress.close()
        later.move_to(1, 1)
        later.close()
        assert (noted.fetched, noted.held) == ([0, 1, 2], set())


def test_a_cache_without_room_for_all_is_given_what_is_fetched_for_each_load_in_the_order_of_loads(
    tmp_path: Path,
) -> None:
    with DiskCache(tmp_path, limit=1 << 20) as cache:
        noted, ahead = following([10] * 3, most_bytes=1000, cache=cache, kept_in=KeptIn.CACHE_WHEN_READ)
        progress = ahead.announced(order_of([2, 1, 0, 1, 2]))
        for place in range(1, 6):
            progress.move_to(place, place)
        assert noted.fetched == [1, 0, 1, 2]
        progress.close()
    assert noted.kept_in == {KeptIn.CACHE_WHEN_READ}
    noted, ahead = following([10] * 3, most_bytes=1000)
    ahead.announced(order_of([0, 1])).move_to(1, 1)
    assert noted.kept_in == {KeptIn.MEMORY}


def test_what_has_begun_is_not_fetched_again_by_who_tells_late() -> None:
    noted, ahead = following([10] * 4, most_bytes=10)
    progress = ahead.announced(order_of([0, 1, 2, 3]))
    progress.move_to(1, 1)
    progress.move_to(1, 3)  # there is no room, and load 2 fetches for itself
    progress.move_to(2, 2)  # by who ended load 1, and looked before load 2 began
    assert noted.fetched == [1, 3]
    progress.close()


def test_an_order_that_is_over_takes_nothing_when_its_last_loads_end() -> None:
    noted, ahead = following([10] * 4, most_bytes=10)
    before = ahead.announced(dataclasses.replace(order_of([0, 1, 2, 3]), first=2))
    before.move_to(1, 2)
    after = ahead.announced(order_of([2, 3]))
    after.move_to(0, 1)
    before.close()
    before.move_to(2, 2)
    after.move_to(2, 2)
    assert noted.held == set()
    after.close()


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    most_bytes=st.integers(1, 200),
    data=st.data(),
)
def test_the_bound_holds_whatever_the_order_of_calls(sizes: list[int], most_bytes: int, data: st.DataObject) -> None:
    groups = data.draw(st.permutations(range(len(sizes))))
    noted, ahead = following(sizes, most_bytes=most_bytes)
    progress = ahead.announced(order_of(groups))
    for _ in range(12):
        begun = data.draw(st.integers(0, len(sizes)))
        progress.move_to(data.draw(st.integers(0, begun)), begun)
        held = [sizes[group] for group in noted.held]
        assert sum(held) - max(held, default=0) < most_bytes
        assert noted.fetched == [group for group in groups if group in noted.fetched]
    progress.close()
    assert not noted.held


@pytest.fixture(scope="module")
def folder(served: Served) -> Path:
    """Row groups of 320 KB."""
    path = served.root / uuid.uuid4().hex
    path.mkdir()
    ids = np.arange(GROUPS * ROWS)
    for number, own in enumerate(np.split(ids, FILES)):
        table = pa.table({"id": own, "noise": own ^ NOISE})
        pq.write_table(
            table, path / f"part-{number}.parquet", row_group_size=ROWS, compression="none", use_dictionary=False
        )
    return path


def urls_of(folder: Path, port: int) -> list[str]:
    return [f"http://127.0.0.1:{port}/{folder.name}/{path.name}" for path in sorted(folder.iterdir())]


def read(urls: list[str], **asked: Any) -> list[int]:
    with petastore.make_batch_reader(urls, **{"seed": 3, "workers_count": 2, **asked}) as reader:
        found: list[int] = []
        for batch in reader:
            assert (batch.noise == batch.id ^ NOISE).all()
            found += batch.id.tolist()
    return found


def chunk_bytes(heads: list[str]) -> int:
    """Bytes of column chunks that were asked for; ends of files are asked for by their lengths, as far as known."""
    ranges = [re.search(r"bytes=(\d+)-(\d+)", head) for head in heads]
    return sum(int(one[2]) - int(one[1]) + 1 for one in ranges if one is not None)


def bytes_of_chunks(folder: Path) -> int:
    """Of all column chunks of the dataset."""
    files = [pq.read_metadata(path) for path in folder.iterdir()]
    groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
    return sum(group.column(leaf).total_compressed_size for group in groups for leaf in range(group.num_columns))


WITHOUT: dict[str, Any] = {"memory_budget": 10**9}
"""Options with which nothing is fetched ahead: a budget counts what is asked for now."""

servers = pytest.mark.server
leaves = pytest.mark.leaves_running("fsspec keeps its web session")


@servers
@leaves
@pytest.mark.parametrize("asked", [{}, {"num_epochs": 3}, {"shuffle_rows": True, "num_epochs": 2}], ids=str)
def test_rows_and_bytes_are_those_of_reading_without(folder: Path, proxy: FaultProxy, asked: dict[str, Any]) -> None:
    urls = urls_of(folder, proxy.port)
    found, costs = [], []
    for options in (asked, asked | WITHOUT):
        proxy.begin(Faults())
        found.append(read(urls, **options))
        costs.append(chunk_bytes(proxy.counted.heads))
    assert found[0] == found[1]
    assert sorted(found[0]) == sorted(list(range(GROUPS * ROWS)) * asked.get("num_epochs", 1))
    # Two loads of a row group that come at the same time may share what was fetched; none is fetched for nobody.
    epochs = asked.get("num_epochs", 1)
    whole = bytes_of_chunks(folder)
    assert all(whole <= cost <= epochs * whole for cost in costs), (whole, costs)


@servers
@leaves
def test_through_a_cache_each_byte_is_fetched_once_and_what_is_there_not_at_all(
    folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26}
    for epochs, times in ((3, 1), (2, 0)):
        proxy.begin(Faults())
        assert sorted(read(urls_of(folder, proxy.port), num_epochs=epochs, **asked)) == sorted(
            list(range(GROUPS * ROWS)) * epochs
        )
        assert chunk_bytes(proxy.counted.heads) == times * bytes_of_chunks(folder)


@servers
@leaves
@pytest.mark.parametrize("reshuffle", ["static", "epoch"])
def test_of_a_cache_with_less_room_as_much_is_found_as_if_nothing_were_fetched_ahead(
    folder: Path, proxy: FaultProxy, tmp_path: Path, reshuffle: Any
) -> None:
    found = []
    for name, options in (("ahead", {}), ("not ahead", WITHOUT)):
        cache: Any = {
            "cache_type": "local-disk",
            "cache_location": tmp_path / name,
            "cache_size_limit": HALF,
            **options,
        }
        proxy.begin(Faults())
        with petastore.make_batch_reader(
            urls_of(folder, proxy.port), seed=3, workers_count=1, num_epochs=4, reshuffle=reshuffle, **cache
        ) as reader:
            ids = sorted(int(one) for batch in reader for one in batch.id)
            told = reader.diagnostics
        assert ids == sorted(list(range(GROUPS * ROWS)) * 4)
        assert told["cache_misses"] * bytes_of_chunks(folder) == chunk_bytes(proxy.counted.heads) * GROUPS
        found.append((told["cache_hits"], told["cache_misses"]))
    assert found[0] == found[1]
    assert found[0][0] >= 3 * (GROUPS // 2 - 1)


@servers
@leaves
@pytest.mark.parametrize("limit", [0, HALF, 1 << 26])
def test_the_line_is_busy_while_nobody_asks(limit: int, folder: Path, proxy: FaultProxy, tmp_path: Path) -> None:
    """After one batch, row groups come that no worker has begun to load; also with a cache that has room, or less."""
    asked: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": limit}
    with petastore.make_batch_reader(
        urls_of(folder, proxy.port), shuffle_row_groups=False, workers_count=1, **(asked if limit else {})
    ) as reader:
        next(reader)
        # The test's time limit is the only one: another process counts, and tells nobody.
        while proxy.counted.bytes < GROUPS * ROWS * 16:
            time.sleep(0.01)
        assert len(next(reader).id)


@servers
@leaves
def test_who_meets_a_file_that_changed_is_told(folder: Path, served: Served, tmp_path: Path) -> None:
    own = served.root / uuid.uuid4().hex
    own.mkdir()
    for path in folder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    with petastore.make_batch_reader(urls_of(own, served.port), shuffle_row_groups=False, workers_count=1) as reader:
        ids = np.arange(GROUPS * ROWS // FILES)
        table = pa.table({"id": ids, "noise": ids})
        pq.write_table(table, own / "part-1.parquet", row_group_size=ROWS, compression="none", use_dictionary=False)
        with pytest.raises(DatasetChangedError, match=r"part-1\.parquet"):
            list(reader)


@servers
@leaves
def test_a_line_that_is_cut_for_good_is_an_error_of_ours(folder: Path, proxy: FaultProxy) -> None:
    # With reading ahead all of it may be there before the line is cut.
    with petastore.make_batch_reader(
        urls_of(folder, proxy.port), shuffle_row_groups=False, workers_count=1, storage_timeout=2, **WITHOUT
    ) as reader:
        next(reader)
        proxy.begin(Faults(reset=1.0))
        with pytest.raises(StorageError):
            list(reader)
