"""Readers tell caches what they will load: what is needed next is kept, by all of them together."""

from __future__ import annotations

import dataclasses
import tracemalloc
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.cache import DiskCache, simulate
from petastore.cache.table import slots_for, table_bytes
from petastore.inventory import Inventory
from petastore.plan.batches.load_order import LoadOrder
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Order, ReadRequest
from petastore.predicates import in_lambda
from petastore.readers.loaded.foresight import Foresight
from petastore.readers.reader import Reader
from tests.servers.fixtures import Served

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session")]
GROUPS, FILES, ROWS = 64, 4, 5_000
CHUNK_BYTES = 40_960
"""Of an entry: 5,000 numbers of eight bytes, as they are stored, in whole blocks."""

EPOCHS = 4


def room(groups: int) -> int:
    """The limit of a cache with room for the only column of so many row groups, and for what readers announce."""
    entries = groups * CHUNK_BYTES + 8 * 4096
    return entries + table_bytes(slots_for(entries))


@dataclasses.dataclass
class Remote:
    """A dataset behind a server, and where a cache of it lies."""

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
    """A follower that writes down how far it is told that the loads have come."""

    moves: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def announced(self, order: LoadOrder) -> Heard:
        del order
        return self

    def move_to(self, position: int, begun: int) -> None:
        self.moves.append((position, begun))

    def close(self) -> None:
        pass


class AnOrder:
    """A plan that loads some row groups once, in the order of their numbers."""

    def load_order(self, after: Cursor) -> LoadOrder:
        return LoadOrder(np.arange(4), first=4, then=after, sure=4)


def test_what_was_planned_is_not_over_because_another_worker_began_what_comes_after_it() -> None:
    heard = Heard()
    foresight = Foresight(AnOrder(), [heard], Cursor())
    assert foresight.plans([0, 1, 2]) == [0, 1, 2]
    ends = {}
    for group in (1, 0, 2):
        ends[group] = foresight.begins(group)
        assert heard.moves[-1][0] == 0
    for group, position in ((1, 0), (0, 2), (2, 3)):
        end = ends[group]
        assert end is not None
        end(None)
        assert heard.moves[-1] == (position, 3)
    foresight.close()


def hits_of(reader: Reader) -> float:
    """The share of chunks that were found after the first epoch; all rows are looked at."""
    ids = np.sort(np.concatenate([batch.id for batch in reader]))
    assert (ids == np.repeat(np.arange(reader.num_rows), EPOCHS)).all()
    return float(reader.diagnostics["cache_hits"] / (GROUPS * (EPOCHS - 1)))


def orders_of(reader: Reader) -> list[np.ndarray[Any, Any]]:
    """Of each epoch, the row groups in the order in which they are loaded, as the spans of the plan say."""
    found: list[list[int]] = [[] for _ in range(EPOCHS)]
    for span in reader.plan.spans(1000, rows_per_span=4000, after=Cursor()):
        found[span.epoch] += span.fetch
    return [np.array(order) for order in found]


def simulated(reader: Reader, policy: Any) -> float:
    """The share of hits after the first epoch of a cache with room for half of the row groups."""
    hits = simulate(orders_of(reader), np.ones(GROUPS, np.int64), GROUPS // 2, policy)
    return float(np.mean(hits[1:]))


DUMMY = {"reader_pool_type": "dummy", "schema_fields": ["id"]}
STATIC: list[dict[str, Any]] = [
    {"shuffle_row_groups": False},
    {"reshuffle": "static"},
    {"reshuffle": "static", "workers_count": 4, "reader_pool_type": "thread"},
    {"reshuffle": "static", "shuffle_rows": True},
]


@pytest.mark.parametrize("asked", STATIC, ids=lambda asked: " ".join(map(str, asked)))
def test_an_order_that_stays_finds_half_with_room_for_half(asked: Any, remote: Remote) -> None:
    with remote.reader(**{**DUMMY, **asked}) as reader:
        assert hits_of(reader) >= 0.48
        assert simulated(reader, "lru") < 0.25


@pytest.mark.parametrize("asked", [{}, {"shuffle_rows": True}, {"workers_count": 4, "reader_pool_type": "thread"}])
def test_orders_that_change_find_twice_as_much_as_by_recency(asked: Any, remote: Remote) -> None:
    with remote.reader(**{**DUMMY, **asked}) as reader:
        assert hits_of(reader) >= max(2 * simulated(reader, "lru"), 0.4)


def test_readers_that_share_a_cache_keep_what_each_of_them_needs_next(remote: Remote) -> None:
    """Two that read the same in one order, one some way behind: each finds more than half of what it asks for."""
    asked = {**DUMMY, "reshuffle": "static"}
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
def test_what_a_reader_leaves_out_is_not_announced(asked: Any, remote: Remote) -> None:
    """Half of the row groups with room for a quarter: half of them are found, whatever lay in the cache before."""
    asked = {**DUMMY, "shuffle_row_groups": False, "filter_cache": False, **asked}
    limit = room(GROUPS // 4)
    with remote.reader(**{**DUMMY, "num_epochs": 1, "cache_size_limit": limit}) as everything:
        for _ in everything:
            pass
    with remote.reader(**{**asked, "cache_size_limit": limit}) as reader:
        order = reader.plan.load_order(Cursor())
        assert len(order.groups) == 2 * order.first == GROUPS
        before = reader.diagnostics["cache_hits"]
        assert sum(len(batch.id) for batch in reader) == EPOCHS * GROUPS * ROWS // 2
        assert reader.diagnostics["cache_hits"] - before >= 0.48 * (EPOCHS - 1) * GROUPS // 2


def test_columns_that_a_reader_leaves_out_give_way(remote: Remote) -> None:
    with remote.reader(**{**DUMMY, "schema_fields": ["other"], "num_epochs": 1}) as other:
        assert sum(len(batch.other) for batch in other) == GROUPS * ROWS
        assert other.diagnostics["cache_bytes_written"] >= GROUPS // 2 * 40_000
    with remote.reader(**DUMMY, reshuffle="static") as reader:
        assert hits_of(reader) >= 0.48


def test_passes_of_one_epoch_go_on_as_epochs_do(remote: Remote) -> None:
    with remote.reader(**{**DUMMY, "num_epochs": 1}) as reader:
        for _ in range(EPOCHS):
            assert sum(len(batch.id) for batch in reader) == GROUPS * ROWS
        assert reader.diagnostics["cache_hits"] >= 0.45 * (EPOCHS - 1) * GROUPS


def test_sources_of_a_mixture_are_told_in_one_order(urls: list[str], tmp_path: Path) -> None:
    limit = room(GROUPS // 2)
    datasets = [petastore.open_dataset(some).with_cache(tmp_path, limit=limit) for some in (urls[:2], urls[2:])]
    asked: dict[str, Any] = {"schema_fields": ["id"], "shuffle_row_groups": False, "reader_pool_type": "dummy"}
    with petastore.make_mixed_reader(
        datasets, [1, 1], stop="all_exhausted", seed=0, num_epochs=EPOCHS, **asked
    ) as reader:
        assert sum(len(batch["id"]) for batch in reader.iter_batches(ROWS)) == EPOCHS * GROUPS * ROWS
        assert reader.diagnostics["cache_hits"] >= 0.48 * (EPOCHS - 1) * GROUPS


def test_who_stops_early_takes_back_what_was_told(remote: Remote) -> None:
    with DiskCache(remote.cache, limit=room(GROUPS // 2)) as cache:
        with remote.reader(**DUMMY) as reader:
            next(reader)
            assert cache.info().readers == 1
        assert cache.info().readers == 0


def test_foresight_keeps_nothing_of_row_groups_that_are_loaded() -> None:
    """At most 20 bytes each: an empty deque takes 800."""
    groups = 20_000
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=False, lanes=1, block_rows=1)
    plan = Plan(Inventory.of_rows([10] * groups), ReadRequest(("id",), order))
    heard = Heard()
    foresight = Foresight(plan, [heard], Cursor())
    loads = plan.load_order(Cursor()).groups[:groups].tolist()
    tracemalloc.start()
    try:
        for group in loads:
            foresight.plans([group])
            ended = foresight.begins(group)
            assert ended is not None
            ended(None)
            heard.moves.clear()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    foresight.close()
    assert held <= 20 * groups
