"""Tests of prefetching row groups: in load order, within a byte limit, and nothing twice."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils.data import DataLoader

import petastore
from petastore.adapters.torch import ReaderDataset
from petastore.errors import DatasetChangedError, StorageError
from petastore.inventory import Inventory
from petastore.readers.execution.memory_budget import Budget
from petastore.readers.loaded.prefetch import Prefetcher, ReadDataset
from petastore.storage.row_groups.fetched_ahead import FetchedAhead
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

GROUPS, FILES, ROWS = 24, 3, 40_000
CHUNKS = 2 * GROUPS
NOISE = 0xF00D
HALF = 1 << 23
"""Limit of a cache that fits half of the data and its metadata."""


@dataclasses.dataclass
class Noted:
    """A stand-in for a dataset and its files that records which row groups are prefetched, in which order."""

    inventory: Inventory
    fetched: list[int] = dataclasses.field(default_factory=list)
    held: set[int] = dataclasses.field(default_factory=set)
    location: None = None
    is_fetched: bool = True

    @property
    def ahead(self) -> Noted:
        return self

    def fetch_ahead(
        self, _file: object, ordinal: int, columns: tuple[str, ...], files: object, *, by_cache: bool
    ) -> None:
        assert (columns, by_cache) == (("id",), False)
        assert files is self
        assert ordinal not in self.held
        self.fetched.append(ordinal)
        self.held.add(ordinal)

    def drop(self, place: tuple[int, str, int]) -> None:
        self.held.remove(place[2])


@dataclasses.dataclass
class Planned:
    """A stand-in for a span that has only the row groups to fetch."""

    fetch: list[int]


def prefetching(sizes: list[int], *, most_bytes: int, first_group: int = 0) -> tuple[Noted, Any]:
    """Return a prefetcher whose first load has ended."""
    noted: Any = Noted(Inventory.of_rows(sizes, bytes_per_row=1))
    prefetcher = Prefetcher([ReadDataset(noted, first_group, ("id",))], noted, most_bytes)
    prefetcher.end(first_group, was_requested=prefetcher.begin(first_group))
    return noted, prefetcher


def load(prefetcher: Any, *groups: int) -> None:
    for group in groups:
        prefetcher.end(group, was_requested=prefetcher.begin(group))


def test_prefetch_requests_row_groups_in_load_order() -> None:
    noted, prefetcher = prefetching([10] * 6, most_bytes=30)
    assert prefetcher.wants_more
    prefetcher.plan(Planned([5, 3]))
    assert (noted.fetched, prefetcher.wants_more) == ([5, 3], True)
    prefetcher.plan(Planned([1, 0, 2, 4]))
    assert (noted.fetched, prefetcher.wants_more) == ([5, 3, 1], False)
    assert prefetcher.begin(5)
    assert noted.fetched == [5, 3, 1]
    prefetcher.end(5, was_requested=True)
    assert (noted.fetched, noted.held) == ([5, 3, 1, 0], {3, 1, 0})
    load(prefetcher, 3, 1, 0, 2, 4)
    assert noted.held == set()


def test_prefetch_starts_after_the_first_row_group_is_loaded() -> None:
    noted: Any = Noted(Inventory.of_rows([10] * 4, bytes_per_row=1))
    prefetcher: Any = Prefetcher([ReadDataset(noted, 0, ("id",))], noted, 1000)
    prefetcher.plan(Planned([0, 1, 2]))
    assert not prefetcher.begin(0)
    assert not prefetcher.begin(1)
    assert noted.fetched == []
    prefetcher.end(0, was_requested=False)
    assert noted.fetched == [2]


def test_row_group_planned_twice_is_prefetched_once() -> None:
    noted, prefetcher = prefetching([10] * 3, most_bytes=20, first_group=7)
    prefetcher.plan(Planned([7, 8]))
    prefetcher.plan(Planned([7, 9]))
    assert noted.fetched == [0, 1]
    load(prefetcher, 7)
    assert (noted.fetched, noted.held) == ([0, 1], {0, 1})
    load(prefetcher, 8)
    assert noted.held == {0, 2}
    load(prefetcher, 7, 9)
    assert noted.held == set()
    prefetcher.plan(Planned([7]))
    assert noted.fetched == [0, 1, 2, 0]
    load(prefetcher, 7)


def test_row_group_loaded_before_its_prefetch_is_not_prefetched() -> None:
    noted, prefetcher = prefetching([10] * 4, most_bytes=10)
    prefetcher.plan(Planned([0, 1, 2, 3]))
    first = prefetcher.begin(0)
    assert not prefetcher.begin(1)
    prefetcher.end(0, was_requested=first)
    prefetcher.end(1, was_requested=False)
    assert noted.fetched == [0, 2]
    load(prefetcher, 2, 3)
    assert noted.held == set()


def test_local_datasets_of_a_mixture_are_not_prefetched() -> None:
    noted, other = (Noted(Inventory.of_rows([10] * 2, bytes_per_row=1)) for _ in range(2))
    other.is_fetched = False
    files: Any = noted
    datasets: Any = [ReadDataset(each, first, ("id",)) for each, first in ((other, 0), (noted, 2))]  # type: ignore[arg-type]
    prefetcher: Any = Prefetcher(datasets, files, 1000)
    load(prefetcher, 0)
    prefetcher.plan(Planned([1, 3, 0, 2]))
    assert (noted.fetched, other.fetched) == ([1, 0], [])


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    most_bytes=st.integers(1, 200),
    data=st.data(),
)
def test_prefetch_byte_limit_holds_in_any_load_order(sizes: list[int], most_bytes: int, data: st.DataObject) -> None:
    planned = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=30))
    noted, prefetcher = prefetching(sizes, most_bytes=most_bytes)
    under_way: list[tuple[int, bool]] = []
    coming: list[int] = []
    while planned or coming or under_way:
        event = data.draw(
            st.sampled_from([*["plan"] * bool(planned), *["begin"] * bool(coming), *["end"] * bool(under_way)])
        )
        if event == "plan":
            coming.append(planned.pop(0))
            prefetcher.plan(Planned(coming[-1:]))
        elif event == "begin":
            group = coming.pop(0)
            under_way.append((group, prefetcher.begin(group)))
        else:
            group, was_requested = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            prefetcher.end(group, was_requested=was_requested)
        assert sum(sizes[group] for group in noted.held) <= most_bytes
    assert not noted.held


@pytest.fixture(scope="module")
def folder(served: Served) -> Path:
    """Write three files whose row groups have two column chunks of 320 KB."""
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


def read(urls: list[str], **asked: Any) -> NDArray[np.int64]:
    with petastore.make_batch_reader(urls, **{"seed": 3, "workers_count": 2, **asked}) as reader:
        found: list[NDArray[np.int64]] = []
        for batch in reader:
            assert (batch.noise == batch.id ^ NOISE).all()
            found.append(batch.id.copy())
    return np.concatenate(found)


def each_row_came(ids: NDArray[np.int64], *, times: int) -> bool:
    """Return whether each row's id occurs exactly `times` times."""
    return bool((np.bincount(ids) == np.full(GROUPS * ROWS, times)).all())


def chunk_bytes(heads: list[str]) -> int:
    """Return the requested bytes of column chunks; footers are requested by suffix range and not counted."""
    ranges = [re.search(r"bytes=(\d+)-(\d+)", head) for head in heads]
    return sum(int(one[2]) - int(one[1]) + 1 for one in ranges if one is not None)


def bytes_of_chunks(folder: Path) -> int:
    """Return the bytes of all column chunks of the dataset."""
    files = [pq.read_metadata(path) for path in folder.iterdir()]
    groups = [file.row_group(number) for file in files for number in range(file.num_row_groups)]
    return sum(group.column(leaf).total_compressed_size for group in groups for leaf in range(group.num_columns))


@contextlib.contextmanager
def without_prefetching() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FetchedAhead, "begin", lambda *_, **__: None)
        yield


servers = pytest.mark.server
leaves = pytest.mark.leaves_running("fsspec keeps its web session")


@servers
@leaves
@pytest.mark.parametrize("asked", [{}, {"num_epochs": 3}, {"shuffle_rows": True, "num_epochs": 2}], ids=str)
def test_prefetch_does_not_change_rows_and_bytes(folder: Path, proxy: FaultProxy, asked: dict[str, Any]) -> None:
    urls = urls_of(folder, proxy.port)
    found, costs = [], []
    for prefetching in (contextlib.nullcontext, without_prefetching):
        proxy.begin(Faults())
        with prefetching():
            found.append(read(urls, **asked))
        costs.append(chunk_bytes(proxy.counted.heads))
    assert np.array_equal(found[0], found[1])
    assert each_row_came(found[0], times=asked.get("num_epochs", 1))
    # Concurrent loads of a row group may share one prefetch, and each prefetch is used.
    epochs = asked.get("num_epochs", 1)
    whole = bytes_of_chunks(folder)
    assert all(whole <= cost <= epochs * whole for cost in costs), (whole, costs)


@servers
@leaves
@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_row_groups_of_small_remote_dataset_are_not_refetched_each_epoch(
    shuffle_rows: bool, served: Served, proxy: FaultProxy
) -> None:
    """Row groups of the next epoch are planned before this epoch's are loaded, so both share requests."""
    epochs, small = 20, served.root / uuid.uuid4().hex
    petastore.write_dataset(str(small), {"id": np.arange(240_000)}, rows_per_row_group=10_000)
    proxy.begin(Faults(latency_s=0.02))
    urls = [url for url in urls_of(small, proxy.port) if url.endswith(".parquet")]
    options: dict[str, Any] = {"seed": 3, "workers_count": 2, "shuffle_rows": shuffle_rows, "num_epochs": epochs}
    with petastore.make_batch_reader(urls, **options) as reader:
        ids = np.concatenate([batch.id.copy() for batch in reader])
    assert (np.bincount(ids) == epochs).all()
    files = sum(path.stat().st_size for path in small.glob("*.parquet"))
    assert chunk_bytes(proxy.counted.heads) < 3 * files, "fetched more often than in 3 of 20 epochs"


@servers
@leaves
def test_prefetch_with_a_disk_cache_fetches_each_byte_at_most_once(
    folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    asked: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path, "cache_size_limit": 1 << 26}
    for epochs, times in ((3, 1), (2, 0)):
        proxy.begin(Faults())
        assert each_row_came(read(urls_of(folder, proxy.port), num_epochs=epochs, **asked), times=epochs)
        assert chunk_bytes(proxy.counted.heads) == times * bytes_of_chunks(folder)


@servers
@leaves
@pytest.mark.parametrize("reshuffle", [False, True])
def test_prefetch_does_not_reduce_cache_hits(folder: Path, proxy: FaultProxy, tmp_path: Path, reshuffle: Any) -> None:
    found = []
    for name, prefetching in (("ahead", contextlib.nullcontext), ("not ahead", without_prefetching)):
        cache: Any = {"cache_type": "local-disk", "cache_location": tmp_path / name, "cache_size_limit": HALF}
        proxy.begin(Faults())
        with (
            prefetching(),
            petastore.make_batch_reader(
                urls_of(folder, proxy.port),
                seed=3,
                workers_count=1,
                num_epochs=4,
                reshuffle_each_epoch=reshuffle,
                **cache,
            ) as reader,
        ):
            ids = np.concatenate([batch.id.copy() for batch in reader])
            told = reader.diagnostics
        assert each_row_came(ids, times=4)
        # Two loads of a row group may share one prefetch: then fewer bytes are fetched than the cache misses.
        fetched, missed = chunk_bytes(proxy.counted.heads) * CHUNKS, told["cache_misses"] * bytes_of_chunks(folder)
        assert fetched == missed if name == "not ahead" else bytes_of_chunks(folder) * CHUNKS <= fetched <= missed
        found.append((told["cache_hits"], told["cache_misses"]))
    assert found[0] == found[1]
    assert found[0][0] >= 2 * 3 * (GROUPS // 2 - 1)


@servers
@leaves
@pytest.mark.parametrize("options", [{}, {"memory_budget": 10**9}, {"limit": HALF}, {"limit": 1 << 26}], ids=str)
@pytest.mark.parametrize("is_mixed", [False, True])
def test_prefetch_continues_while_the_consumer_is_idle(
    options: dict[str, int], is_mixed: bool, folder: Path, proxy: FaultProxy, tmp_path: Path
) -> None:
    """After one batch, row groups are prefetched that no worker has begun to load."""
    urls = urls_of(folder, proxy.port)
    asked: dict[str, Any] = {"shuffle_row_groups": False, "workers_count": 1}
    kept: dict[str, Any] = {
        "cache_type": "local-disk",
        "cache_location": tmp_path,
        "cache_size_limit": options.get("limit"),
    }
    budget: dict[str, Any] = {name: size for name, size in options.items() if name != "limit"}
    if is_mixed:
        mixed = [petastore.open_dataset(some) for some in (urls[:2], urls[2:])]
        if "limit" in options:
            mixed = [dataset.with_cache(tmp_path, limit=options["limit"]) for dataset in mixed]
        reader = petastore.make_mixed_reader(mixed, [2, 1], **asked, **budget)
    else:
        reader = petastore.make_batch_reader(urls, **asked, **budget, **(kept if "limit" in options else {}))
    with reader:
        batches = reader.iter_batches(ROWS)
        next(batches)
        # The proxy is another process, so the test polls its counter until the test's time limit.
        while proxy.counted.bytes < GROUPS * ROWS * 16:
            time.sleep(0.01)
        assert next(batches).num_rows == ROWS


@servers
@leaves
def test_memory_estimate_counts_prefetched_row_groups(folder: Path, proxy: FaultProxy) -> None:
    def estimate(budget: int | None) -> Budget:
        with petastore.make_batch_reader(urls_of(folder, proxy.port), workers_count=1, memory_budget=budget) as reader:
            return reader.estimate_memory(1000)

    free, wide = estimate(None), estimate(10**9)
    assert free.prefetched_bytes == wide.prefetched_bytes == bytes_of_chunks(folder)
    assert wide.total_bytes <= 10**9
    tight = wide.total_bytes - wide.prefetched_bytes
    assert (estimate(tight).prefetched_bytes, estimate(tight).total_bytes <= tight) == (0, True)


@servers
@leaves
def test_prefetch_of_a_changed_file_raises(folder: Path, served: Served, tmp_path: Path) -> None:
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
def test_prefetch_with_a_lost_connection_raises_storage_error(folder: Path, proxy: FaultProxy) -> None:
    # With prefetching, all bytes may have arrived before the connection is cut.
    with (
        without_prefetching(),
        petastore.make_batch_reader(
            urls_of(folder, proxy.port), shuffle_row_groups=False, workers_count=1, storage_timeout=2
        ) as reader,
    ):
        next(reader)
        proxy.begin(Faults(reset=1.0))
        with pytest.raises(StorageError):
            list(reader)


@servers
@leaves
@pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:Length of IterableDataset")
@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_dataloader_workers_fetch_each_byte_once(shuffle_rows: bool, folder: Path, proxy: FaultProxy) -> None:
    costs, ends = {}, tuple(f"-{path.stat().st_size - 1}" for path in folder.iterdir())
    for num_workers in (1, 2, 4):
        proxy.begin(Faults())
        rows = ReaderDataset(urls_of(folder, proxy.port), batch_size=20_000, seed=0, shuffle_rows=shuffle_rows)
        context: Any = "fork"
        batches = DataLoader(rows, batch_size=None, num_workers=num_workers, multiprocessing_context=context)
        ids = np.concatenate([batch["id"].numpy() for batch in batches])
        assert (np.sort(ids) == np.arange(GROUPS * ROWS)).all()
        chunks = [head for head in proxy.counted.heads if not head.endswith(ends)]  # each worker reads footers
        costs[num_workers] = chunk_bytes(chunks) / bytes_of_chunks(folder)
    assert max(costs.values()) <= 1.05, costs
