"""Tests of the access order that readers announce to the disk cache: eviction, cache hits, several readers."""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.cache import DiskCache, simulate
from petastore.cache.table import slots_for, table_bytes
from petastore.inventory import Inventory
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest
from petastore.predicates import in_lambda
from petastore.readers.loaded.prefetch import CacheOrder, Prefetcher, ReadDataset
from petastore.readers.reader import Reader
from tests.servers.fixtures import Served
from tests.tier import sized

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session")]
GROUPS, FILES, ROWS = 64, 4, 5_000
CHUNK_BYTES = 40_960
"""Bytes of a cache entry: 5,000 numbers of eight bytes as stored, rounded up to whole blocks."""

EPOCHS = 4


def room(groups: int) -> int:
    """Return a cache limit that fits one column of this many row groups, and the announcements of readers."""
    entries = groups * CHUNK_BYTES + 8 * 4096
    return entries + table_bytes(slots_for(entries))


@dataclasses.dataclass
class Remote:
    """A dataset on a server, and the location of its cache."""

    urls: list[str]
    cache: Path

    def reader(self, **asked: Any) -> Reader:
        kept = {"cache_type": "local-disk", "cache_location": self.cache, "cache_size_limit": room(GROUPS // 2)}
        return petastore.make_batch_reader(self.urls, **{"seed": 3, "num_epochs": EPOCHS, **kept, **asked})


@pytest.fixture(scope="module")
def urls(served: Served) -> list[str]:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    rows = GROUPS // FILES * ROWS
    for number in range(FILES):
        ids = np.arange(rows) + number * rows
        table = pa.table({"id": ids, "other": -ids})
        path = folder / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=ROWS, compression="none", use_dictionary=False)
    return [f"http://127.0.0.1:{served.port}/{folder.name}/{path.name}" for path in sorted(folder.iterdir())]


@pytest.fixture
def remote(urls: list[str], tmp_path: Path) -> Remote:
    return Remote(urls, tmp_path / "cache")


@dataclasses.dataclass
class Heard:
    """A dataset whose cache records the announced orders and positions."""

    inventory: Inventory
    moves: list[tuple[int, int]] = dataclasses.field(default_factory=list)
    orders: list[list[int]] = dataclasses.field(default_factory=list)
    location: None = None

    @property
    def kept(self) -> Heard:
        return self

    def announce(self, _location: None, _inventory: Inventory, _columns: tuple[str, ...], groups: Any) -> Heard:
        self.orders.append(groups.tolist())
        return self

    def move_to(self, position: int, begun: int) -> None:
        self.moves.append((position, begun))

    def close(self) -> None:
        pass


def heard_of(plan: Plan) -> tuple[Heard, CacheOrder]:
    heard: Any = Heard(plan.inventory)
    return heard, CacheOrder(plan, [ReadDataset(heard, 0, ("id",))])


def test_announced_position_advances_only_after_loads_have_ended() -> None:
    order = Order(seed=0, shuffle_row_groups=False, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([5] * 4), ReadRequest(("id",), order))
    heard, cache_order = heard_of(plan)
    (span,) = plan.spans(15, rows_per_span=15, after=Cursor(0, 5, 0))
    assert span.fetch == (1, 2, 3)
    assert cache_order.plan(span) == [5, 10, 15]
    assert heard.orders == [[1, 2, 3, 0, 1, 2, 3]]
    for time in (10, 5, 15):
        cache_order.begin(time)
        assert heard.moves[-1][0] == 0
    for time, position in ((10, 0), (5, 2), (15, 3)):
        cache_order.end(time)
        assert heard.moves[-1] == (position, 3)
    cache_order.close()


def hits_of(reader: Reader) -> float:
    """Return the cache hit rate after the first epoch; check that each id was read in each epoch."""
    ids = np.sort(np.concatenate([batch.id for batch in reader]))
    assert (ids == np.repeat(np.arange(reader.num_rows), EPOCHS)).all()
    return float(reader.diagnostics["cache_hits"] / (GROUPS * (EPOCHS - 1)))


def orders_of(reader: Reader) -> list[np.ndarray[Any, Any]]:
    """Return for each epoch the order in which the plan's spans load the row groups."""
    found: list[list[int]] = [[] for _ in range(EPOCHS)]
    for span in reader.plan.spans(1000, rows_per_span=4000, after=Cursor()):
        found[span.epoch] += span.fetch
    return [np.array(order) for order in found]


def simulated(reader: Reader, policy: Any) -> float:
    """Return the hit rate after the first epoch of a simulated cache that fits half of the row groups."""
    hits = simulate(orders_of(reader), np.ones(GROUPS, np.int64), GROUPS // 2, policy)
    return float(np.mean(hits[1:]))


DUMMY = {"reader_pool_type": "dummy", "schema_fields": ["id"]}
STATIC: list[dict[str, Any]] = [
    {"shuffle_row_groups": False},
    {"reshuffle_each_epoch": False},
    {"reshuffle_each_epoch": False, "workers_count": 4, "reader_pool_type": "thread"},
    {"reshuffle_each_epoch": False, "shuffle_rows": True},
]


@pytest.mark.parametrize("asked", STATIC, ids=lambda asked: " ".join(map(str, asked)))
def test_static_order_with_a_cache_of_half_the_data_has_half_cache_hits(asked: Any, remote: Remote) -> None:
    with remote.reader(**{**DUMMY, **asked}) as reader:
        assert hits_of(reader) >= 0.48
        assert simulated(reader, "lru") < 0.25


@pytest.mark.parametrize("asked", [{}, {"shuffle_rows": True}, {"workers_count": 4, "reader_pool_type": "thread"}])
def test_reshuffled_epochs_have_twice_the_cache_hits_of_lru(asked: Any, remote: Remote) -> None:
    with remote.reader(**{**DUMMY, **asked}) as reader:
        assert hits_of(reader) >= max(2 * simulated(reader, "lru"), 0.4)


def test_readers_that_share_a_cache_have_half_cache_hits_on_average(remote: Remote) -> None:
    """Two readers read the same order, one behind the other; their mean hit rate is about a half."""
    asked = {**DUMMY, "reshuffle_each_epoch": False}
    with remote.reader(**asked) as one, remote.reader(**asked) as other, ThreadPoolExecutor(2) as threads:
        shares = list(threads.map(hits_of, (one, other)))
        assert one.dataset.datasets[0].kept.cache is not None
        assert one.dataset.datasets[0].kept.cache.info().readers == 0
    assert sum(shares) / 2 >= 0.48


@pytest.mark.parametrize(
    "asked",
    [
        {"filters": [("id", ">=", GROUPS * ROWS // 2)]},
        {"predicate": in_lambda(["id"], lambda number: number >= GROUPS * ROWS // 2)},
        {"cur_shard": 1, "shard_count": 2},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_row_groups_skipped_by_a_filter_take_no_cache_space(asked: Any, remote: Remote) -> None:
    """The cache fits a quarter of the row groups and half are read: half of the reads hit, whatever it held before."""
    asked = {**DUMMY, "shuffle_row_groups": False, "filter_cache": False, **asked}
    limit = room(GROUPS // 4)
    with remote.reader(**{**DUMMY, "num_epochs": 1, "cache_size_limit": limit}) as everything:
        for _ in everything:
            pass
    with remote.reader(**{**asked, "cache_size_limit": limit}) as reader:
        uses = reader.plan.next_uses(0, 0)
        assert len(uses.groups) == 2 * np.count_nonzero(uses.times < uses.until) == GROUPS
        before = reader.diagnostics["cache_hits"]
        assert sum(len(batch.id) for batch in reader) == EPOCHS * GROUPS * ROWS // 2
        assert reader.diagnostics["cache_hits"] - before >= 0.48 * (EPOCHS - 1) * GROUPS // 2


def test_cached_columns_that_no_reader_needs_are_evicted_first(remote: Remote) -> None:
    with remote.reader(**{**DUMMY, "schema_fields": ["other"], "num_epochs": 1}) as other:
        assert sum(len(batch.other) for batch in other) == GROUPS * ROWS
        assert other.diagnostics["cache_bytes_written"] >= GROUPS // 2 * 40_000
    with remote.reader(**DUMMY, reshuffle_each_epoch=False) as reader:
        assert hits_of(reader) >= 0.48


def test_repeated_loops_of_one_epoch_have_the_cache_hits_of_several_epochs(remote: Remote) -> None:
    with remote.reader(**{**DUMMY, "num_epochs": 1}) as reader:
        for _ in range(EPOCHS):
            assert sum(len(batch.id) for batch in reader) == GROUPS * ROWS
        assert reader.diagnostics["cache_hits"] >= 0.45 * (EPOCHS - 1) * GROUPS


def test_mixture_of_two_datasets_in_one_cache_has_half_cache_hits(urls: list[str], tmp_path: Path) -> None:
    limit = room(GROUPS // 2)
    datasets = [petastore.open_dataset(some).with_cache(tmp_path, limit=limit) for some in (urls[:2], urls[2:])]
    asked: dict[str, Any] = {"schema_fields": ["id"], "shuffle_row_groups": False, "reader_pool_type": "dummy"}
    with petastore.make_mixed_reader(
        datasets, [1, 1], stop="all_exhausted", seed=0, num_epochs=EPOCHS, **asked
    ) as reader:
        assert sum(len(batch["id"]) for batch in reader.iter_batches(ROWS)) == EPOCHS * GROUPS * ROWS
        assert reader.diagnostics["cache_hits"] >= 0.48 * (EPOCHS - 1) * GROUPS


def test_stopping_a_reader_early_removes_its_announced_access_order(remote: Remote) -> None:
    with DiskCache(remote.cache, limit=room(GROUPS // 2)) as cache:
        with remote.reader(**DUMMY) as reader:
            next(reader)
            assert cache.info().readers == 1
        assert cache.info().readers == 0


def test_cache_order_and_prefetcher_take_20_bytes_per_row_group() -> None:
    """An empty deque per row group took 800 bytes. Memory peaks while epochs are read, and then stays flat."""
    groups = sized(full=100_000, quick=4_000)
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows(np.full(groups, 10)), ReadRequest(("id",), order, epochs=3))
    heard, cache_order = heard_of(plan)
    prefetcher = Prefetcher([], cast("Any", None), 0)
    spans = [span for span in plan.spans(1000, rows_per_span=groups // 2) if span.fetch]
    held: list[int] = []
    tracemalloc.start()
    try:
        for span in spans:
            for time in cache_order.plan(span):
                cache_order.begin(time)
                cache_order.end(time)
            for group in span.fetch:
                prefetcher.end(group, was_requested=prefetcher.begin(group))
            heard.moves.clear()
            heard.orders.clear()
            if span.ends_epoch:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    cache_order.close()
    assert len(held) == 3
    assert max(held) <= 20 * groups
    assert held[2] <= 1.05 * held[0]
