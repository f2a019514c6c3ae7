"""Tests of readers with a local disk cache: correct rows, no repeated requests, rewritten files, corruption, limits."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import subprocess
import sys
import uuid
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch.utils.data import DataLoader

import petastore
from petastore.adapters.torch import MapDataset, ReaderDataset
from petastore.errors import CacheBypassWarning, DatasetChangedError, InvalidArgumentError
from petastore.predicates import in_lambda
from petastore.readers.fetches import column_bytes
from petastore.readers.mixed_sources import SourceGiven
from petastore.readers.random_access import RandomAccess
from petastore.readers.reader import Reader
from petastore.work.pools import Workers
from tests.laws.cache_laws import bytes_at_one_moment
from tests.pace import LONG
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served
from tests.tier import sized

pytestmark = [pytest.mark.server, pytest.mark.leaves_running("fsspec keeps its web session")]
ROWS = (40_000, 300)
"""Rows of a large file, and of one small enough that it may be read whole."""

CHUNKS = 3 * (4 + 3)
"""Column chunks of both files: three columns of 40,000 rows by 10,000, and of 300 by 100."""


@dataclasses.dataclass
class Remote:
    """A dataset behind a proxy, and the location of its cache."""

    folder: Path
    proxy: FaultProxy
    cache: Path

    @property
    def urls(self) -> list[str]:
        return [f"{self.proxy.url}/{self.folder.name}/{path.name}" for path in sorted(self.folder.iterdir())]

    def write(self, first: int = 0) -> None:
        self.folder.mkdir(exist_ok=True)
        for number, rows in enumerate(ROWS):
            ids = np.arange(first, first + rows) + 100_000 * number
            table = pa.table({"id": ids, "half": ids / 2, "label": [f"{number % 7:03}" for number in ids.tolist()]})
            path = self.folder / f"part-{number}.parquet"
            pq.write_table(table, path, row_group_size=max(rows // 4, 100), compression="none")

    def reader(self, **asked: Any) -> Reader:
        return petastore.make_batch_reader(self.urls, **{"seed": 0, **self.kept, **asked})

    @property
    def kept(self) -> dict[str, Any]:
        """The reader options that enable the cache."""
        return {"cache_type": "local-disk", "cache_location": self.cache, "cache_size_limit": 1 << 26}

    @property
    def entries(self) -> list[Path]:
        return [path for path in self.cache.glob("petastore-cache-1/entries/*/*") if path.is_file()]


@pytest.fixture
def remote(served: Served, proxy: FaultProxy, tmp_path: Path) -> Remote:
    made = Remote(served.root / uuid.uuid4().hex, proxy, tmp_path / "cache")
    made.write()
    return made


def rows_of(reader: Reader) -> list[tuple[Any, ...]]:
    """Return all rows of a pass, sorted."""
    return sorted(row for batch in reader for row in zip(*(column.tolist() for column in batch), strict=True))


def rows_from(first: int = 0) -> list[tuple[Any, ...]]:
    ids = [first + 100_000 * number + row for number, rows in enumerate(ROWS) for row in range(rows)]
    return [(row, row / 2, f"{row % 7:03}") for row in ids]


@pytest.mark.parametrize("pool", ["thread", "process", "dummy"])
def test_disk_cache_second_epoch_needs_no_storage(pool: Any, remote: Remote) -> None:
    with remote.reader(reader_pool_type=pool) as reader:
        assert rows_of(reader) == rows_from()
        remote.proxy.close()
        assert rows_of(reader) == rows_from()
        found = reader.diagnostics
    assert (found["cache_hits"], found["cache_misses"], found["cache_corrupt"]) == (CHUNKS, CHUNKS, 0)
    assert found["cache_bytes_read"] == found["cache_bytes_written"] > 8 * 2 * sum(ROWS)


def asked_for(heads: list[str]) -> tuple[list[str], list[tuple[str, int, int]]]:
    """Return the sorted requests: those for versions and footers, and the byte ranges of all others.

    A byte range is a file, its first byte and its stop. The number of bytes of a footer request depends on the footers
    read before it.
    """
    found = [re.fullmatch(r"(GET \S+) \S+ bytes=(\d+)-(\d+)", head) for head in heads]
    ranges = [(one[1], int(one[2]), int(one[3]) + 1) for one in found if one is not None]
    others = [head.partition(" bytes=")[0] for head, one in zip(heads, found, strict=True) if one is None]
    return sorted(others), sorted(ranges)


def test_disk_cache_fetches_each_byte_once(remote: Remote) -> None:
    others, sums = [], []
    for epochs, cache in ((1, "a"), (4, "b")):
        remote.proxy.begin(Faults())
        asked = {"reader_pool_type": "dummy", "cache_location": remote.cache / cache}
        with remote.reader(num_epochs=epochs, **asked) as reader:
            assert len(rows_of(reader)) == epochs * sum(ROWS)
        heads, ranges = asked_for(remote.proxy.counted.heads)
        for (file, _, stop), (next_file, first, _) in itertools.pairwise(ranges):
            assert file != next_file or stop <= first, "a byte was asked for twice"
        others.append(heads)
        sums.append(sum(stop - first for _, first, stop in ranges))
    assert others[0] == others[1]
    assert sums[0] == sums[1] > 8 * sum(ROWS)


def test_second_reader_hits_the_cache_of_the_first(remote: Remote) -> None:
    with remote.reader() as one, remote.reader() as other:
        assert rows_of(one) == rows_of(other) == rows_from()
        assert (one.diagnostics["cache_misses"], other.diagnostics["cache_misses"]) == (CHUNKS, 0)
    with remote.reader() as later:
        assert rows_of(later) == rows_from()
        assert later.diagnostics["cache_hits"] == CHUNKS


def test_disk_cache_keeps_row_groups_on_their_rank(remote: Remote) -> None:
    def epochs(**asked: Any) -> list[list[tuple[Any, ...]]]:
        with remote.reader(cur_shard=0, shard_count=2, num_epochs=2, **asked) as reader:
            assert reader.plan.request.order.dealt_to == (None if asked else 2)
            rows = [
                row for batch in reader.iter_batches(500) for row in zip(*(batch[name] for name in batch), strict=True)
            ]
        return [sorted(rows[: len(rows) // 2]), sorted(rows[len(rows) // 2 :])]

    first, second = epochs()
    assert first == second
    first, second = epochs(reshuffle_each_epoch=True)
    assert first != second


def test_disk_cache_concurrent_readers_fetch_each_chunk_once(remote: Remote) -> None:
    remote.proxy.begin(Faults(latency_s=0.02))

    def read(_: int) -> int:
        with remote.reader(workers_count=2) as reader:
            assert rows_of(reader) == rows_from()
            return reader.diagnostics["cache_misses"]

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(read, range(4))) == CHUNKS


@pytest.mark.parametrize(
    "asked",
    [
        {"schema_fields": ["half"]},
        {"filters": [("id", ">=", 100_000)]},
        {"predicate": in_lambda(["label"], lambda label: label == "003")},
        {"shuffle_rows": True, "cur_shard": 1, "shard_count": 3},
        {"transform_spec": petastore.TransformSpec(lambda frame: frame.assign(half=frame.half * 2))},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_disk_cache_does_not_change_rows(asked: Any, remote: Remote) -> None:
    asked = {"filter_cache": False, "num_epochs": 2, "reshuffle_each_epoch": True, **asked}
    with remote.reader(cache_type=None, **asked) as reader:
        expected = rows_of(reader)
        assert not any(count for name, count in reader.diagnostics.items() if name.startswith("cache_"))
    with remote.reader() as reader:
        rows_of(reader)
    for _ in range(2):
        with remote.reader(**asked) as reader:
            assert rows_of(reader) == expected
            assert reader.diagnostics.get("cache_misses", 0) == 0


def test_disk_cache_never_serves_a_rewritten_file(remote: Remote) -> None:
    with remote.reader() as reader:
        rows_of(reader)
    remote.write(first=7)  # the file has the same size
    with remote.reader() as reader:
        assert rows_of(reader) == rows_from(7)


def test_disk_cache_never_mixes_two_versions(remote: Remote) -> None:
    with remote.reader(schema_fields=["id"]) as reader:
        rows_of(reader)
        remote.write(first=7)
        dataset = reader.dataset
        assert isinstance(dataset, petastore.Dataset)
        with (
            Reader(dataset, dataset.plan(seed=0), workers=Workers(), batched=True) as all_columns,
            pytest.raises(DatasetChangedError, match="was rewritten"),
        ):
            rows_of(all_columns)
        assert [row[0] for row in rows_of(reader)] == [row[0] for row in rows_from()]  # the planned version


def test_disk_cache_fetches_damaged_entries_again(remote: Remote) -> None:
    with remote.reader() as reader:
        rows_of(reader)
        for number, path in enumerate(remote.entries):
            whole = bytearray(path.read_bytes())
            whole[(number * 7919) % len(whole)] ^= 1 << number % 8
            path.write_bytes(whole)
        assert rows_of(reader) == rows_from()
        assert reader.diagnostics["cache_corrupt"] == CHUNKS
        remote.proxy.close()
        assert rows_of(reader) == rows_from()


def test_disk_cache_detects_each_wrong_byte(remote: Remote) -> None:
    bytes_in_all = sized(full=500, quick=60)
    chance, done, found = np.random.default_rng(11), 0, 0
    with remote.reader() as reader:
        rows_of(reader)
    while done < bytes_in_all:
        for path in remote.entries:
            whole = bytearray(path.read_bytes())
            whole[chance.integers(len(whole))] ^= chance.integers(1, 256)
            path.write_bytes(whole)
            done += 1
        with remote.reader(reader_pool_type="dummy") as reader:  # this reader needs the footers, too
            assert rows_of(reader) == rows_from()
            found += reader.diagnostics["cache_corrupt"] + reader.diagnostics["footer_corrupt"]
            assert found == done
            if done >= bytes_in_all:
                remote.proxy.close()
                assert rows_of(reader) == rows_from()  # all cache entries are valid again


def test_disk_cache_serves_no_rows_of_a_replaced_dataset(remote: Remote) -> None:
    limit = 1 << 20  # fits one of the versions
    for first in (7, 0, 7, 21):
        remote.write(first)  # the file has the same size
        for _ in range(2):
            with remote.reader(cache_size_limit=limit, num_epochs=2, shuffle_rows=True) as reader:
                assert rows_of(reader) == sorted(2 * rows_from(first))
                assert bytes_at_one_moment(remote.cache) <= limit


def test_disk_cache_limit_holds(remote: Remote) -> None:
    limit = 300_000
    with remote.reader(cache_size_limit=limit) as reader:
        for _ in range(3):
            assert rows_of(reader) == rows_from()
            assert 100_000 < bytes_at_one_moment(remote.cache) <= limit
        assert reader.diagnostics["cache_bypassed"] + reader.diagnostics["cache_bytes_evicted"] > 0


def test_disk_cache_works_with_windows(remote: Remote) -> None:
    fields: dict[int, Any] = {0: ["id", "half"], 1: ["half"]}
    windows = petastore.NGram(fields, delta_threshold=1, timestamp_field="id")
    with remote.reader(schema_fields=windows) as reader:
        first = sorted(tuple(window) for batch in reader.iter_batches(1000) for window in batch["half"].tolist())
        reader.reset()
        remote.proxy.close()
        second = sorted(tuple(window) for batch in reader.iter_batches(1000) for window in batch["half"].tolist())
    assert first == second
    assert len(first) == sum(ROWS) - len(ROWS)


def test_disk_cache_works_with_mixtures(remote: Remote) -> None:
    datasets = [petastore.open_dataset(url).with_cache(remote.cache, limit=1 << 26) for url in remote.urls]
    with petastore.make_mixed_reader(datasets, [1, 1], stop="all_exhausted", seed=0) as reader:
        first = sum(1 for _ in reader)
        remote.proxy.close()
        assert sum(1 for _ in reader) == first
        assert reader.diagnostics["cache_misses"] == CHUNKS


def test_disk_cache_works_with_random_access(remote: Remote) -> None:
    dataset = petastore.open_dataset(remote.urls).with_cache(remote.cache, limit=1 << 26)
    numbers = np.random.default_rng(5).permutation(sum(ROWS))[:50]
    taken = []
    for _ in range(2):
        rows = RandomAccess(dataset, ["id", "label"], cache_bytes=0)
        found = rows.take(numbers)
        taken.append(list(zip(found["id"].tolist(), found["label"].tolist(), strict=True)))
        assert dataset.kept.cache is not None
        misses = dataset.kept.cache.metrics.misses
        remote.proxy.close()
    everything = rows_from()
    assert taken == [[(everything[number][0], everything[number][2]) for number in numbers.tolist()]] * 2
    assert 0 < misses <= CHUNKS
    dataset.kept.close()


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_workers_of_torch_dataloader_fill_the_cache(remote: Remote, num_workers: int) -> None:
    def ids() -> list[int]:
        rows = ReaderDataset(remote.urls, batch_size=1_000, seed=0, **remote.kept)
        assert rows.plan.request.order.reshuffle == "static"
        workers = DataLoader(
            rows, batch_size=None, num_workers=num_workers, multiprocessing_context="fork" if num_workers else None
        )
        return sorted(int(number) for batch in workers for number in batch["id"])

    assert ids() == [row[0] for row in rows_from()]
    remote.proxy.begin(Faults())
    assert ids() == [row[0] for row in rows_from()]
    assert asked_for(remote.proxy.counted.heads)[1] == []


def test_disk_cache_works_with_map_dataset(remote: Remote) -> None:
    numbers = np.random.default_rng(5).permutation(sum(ROWS))[:50].tolist()
    rows = MapDataset(remote.urls, ["id", "label"], cache_bytes=0, **remote.kept)
    expected = [rows_from()[number][0] for number in numbers]
    assert [int(row["id"]) for row in rows.__getitems__(numbers)] == expected
    remote.proxy.close()
    assert [int(row["id"]) for row in rows.__getitems__(numbers)] == expected
    assert rows.rows.dataset.kept.cache is not None
    rows.rows.dataset.kept.close()


def test_disk_cache_can_be_set_for_each_mixture_source(remote: Remote) -> None:
    def mixed(sources: list[SourceGiven], **kept: Any) -> tuple[list[int], dict[str, Any]]:
        with petastore.make_mixed_reader(
            sources, [ROWS[0], ROWS[1]], ["id"], seed=0, stop="all_exhausted", **kept
        ) as reader:
            rows = sorted(int(number) for batch in reader.iter_batches(1_000) for number in batch["id"])
            return rows, reader.diagnostics

    large, small = remote.urls
    kept: Any = {"dataset_url": large, **remote.kept}
    rows, counts = mixed([kept, small])
    assert rows == [row[0] for row in rows_from()]
    assert (counts["cache_hits"], counts["cache_misses"]) == (0, 4)
    rows, counts = mixed([large, small], **remote.kept)
    assert rows == [row[0] for row in rows_from()]
    assert (counts["cache_hits"], counts["cache_misses"]) == (4, 3)
    rows, counts = mixed([large, {"dataset_url": small, "cache_type": None}], **remote.kept)
    assert (counts["cache_hits"], counts["cache_misses"]) == (4, 0)


@pytest.mark.timeout(600)
def test_disk_cache_survives_killed_readers(served: Served, remote: Remote, repository: Path) -> None:
    kills = sized(full=50, quick=6)
    urls = [f"http://127.0.0.1:{served.port}/{remote.folder.name}/{name}.parquet" for name in ("part-0", "part-1")]
    done = subprocess.run(
        [sys.executable, "-m", "tests.readers.killed_with_a_cache", str(remote.cache), str(kills), *urls],
        capture_output=True, text=True, timeout=2 * LONG, cwd=repository, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    outcome = json.loads(done.stdout)
    assert 0 < outcome.pop("most") <= outcome.pop("limit")
    assert outcome.pop("steps") > kills  # each reader is killed at a different step
    assert outcome == {"killed": kills, "wrong": 0, "left": []}


def test_disk_cache_bypass_warns_once(remote: Remote) -> None:
    remote.cache.write_bytes(b"a file, where a directory should be")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", CacheBypassWarning)
        with remote.reader() as reader:
            for _ in range(2):
                assert rows_of(reader) == rows_from()
            assert reader.diagnostics["cache_bypassed"] == 2 * CHUNKS
    assert [warning.category for warning in told if "is bypassed" in str(warning.message)] == [CacheBypassWarning]


def test_disk_cache_ignores_local_files(remote: Remote) -> None:
    with petastore.make_batch_reader(
        str(remote.folder), cache_type="local-disk", cache_location=remote.cache
    ) as reader:
        assert rows_of(reader) == rows_from()
        assert not any(count for name, count in reader.diagnostics.items() if name.startswith("cache_"))
    assert not remote.cache.exists()


def test_disk_cache_works_with_any_remote_filesystem(remote: Remote) -> None:
    store, name = fsspec.filesystem("memory"), uuid.uuid4().hex
    for first in (0, 7):
        remote.write(first)
        for path in remote.folder.iterdir():
            store.pipe_file(f"/{name}/{path.name}", path.read_bytes())
        for hits in (0, CHUNKS):
            with petastore.make_batch_reader(
                f"memory://{name}", cache_type="local-disk", cache_location=remote.cache
            ) as reader:
                assert rows_of(reader) == rows_from(first)
                assert (reader.diagnostics["cache_hits"], reader.diagnostics["cache_misses"]) == (hits, CHUNKS - hits)
    store.rm(f"/{name}", recursive=True)


@pytest.mark.parametrize("asked", [{"cache_location": "s3://bucket/cache"}, {"cache_size_limit": 1000}])
def test_disk_cache_invalid_options_raise_before_reading(asked: Any, remote: Remote) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^cache_(size_limit|location) must be .*, got "):
        remote.reader(**asked)
    assert remote.proxy.counted.requests == 0


def test_diagnostics_count_storage_requests(remote: Remote) -> None:
    with remote.reader(reader_pool_type="dummy") as reader:
        column_bytes(reader.dataset.datasets[0], ["id"])  # reads all footers
        remote.proxy.begin(Faults())
        rows_of(reader)
        found, counted = reader.diagnostics, remote.proxy.counted
        assert (found["storage_requests"], found["storage_bytes"]) == (counted.requests, counted.bytes)
        assert found["storage_retries"] == 0
        rows_of(reader)
        assert reader.diagnostics["storage_requests"] == found["storage_requests"]


def test_diagnostics_count_retried_requests(remote: Remote) -> None:
    # Each epoch sends requests without a cache, so that some of them are certainly reset.
    kept = {"cache_type": None, "cache_location": None, "cache_size_limit": None}
    with remote.reader(num_epochs=15, **kept) as reader:
        column_bytes(reader.dataset.datasets[0], ["id"])  # reads all footers
        remote.proxy.begin(Faults(reset=0.1, seed=1))
        assert rows_of(reader) == sorted(rows_from() * 15)
        found, counted = reader.diagnostics, remote.proxy.counted
        assert found["storage_requests"] == counted.requests
        assert 0 < found["storage_retries"] <= counted.faults.total()
