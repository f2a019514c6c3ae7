"""Tests of `DiskCache`: hits, eviction, waiting readers, disk errors, damage, forks and the laws of caches."""

from __future__ import annotations

import errno
import os
import pickle
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore.cache import DiskCache, entries, entry_file, ledger, simulate
from petastore.cache.entries import FOLDER
from petastore.cache.entry_file import digest_of, size_on_disk
from petastore.cache.folder import Folder, cache_location, locked
from petastore.cache.table import slots_for, table_bytes
from petastore.errors import CacheBypassWarning, InvalidArgumentError, StorageError
from tests.laws.cache_laws import CacheLaws, Source, bytes_at_one_moment
from tests.tier import examples

LIMIT = 1 << 20


class TestDiskCache(CacheLaws):
    def make_cache(self, folder: Path) -> DiskCache:
        return DiskCache(folder, limit=self.limit)


def ask(
    cache: DiskCache, key: str, data: bytes = b"right", fetch: Callable[[], bytes] | None = None, **more: Any
) -> bytes:
    with cache.entry(key, fetch or (lambda: data), **more) as view:
        return bytes(view)


@given(entries=st.dictionaries(st.text(max_size=20), st.binary(max_size=20_000), max_size=10))
@settings(max_examples=30)
def test_cache_miss_returns_the_fetched_bytes(
    entries: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    with DiskCache(tmp_path_factory.mktemp("cache"), limit=LIMIT) as cache:
        for _ in range(2):
            for key, data in entries.items():
                assert ask(cache, key, data) == data
        assert (cache.metrics.hits, cache.metrics.misses) == (len(entries), len(entries))
        written = sum(len(data) for data in entries.values())
        assert cache.metrics.bytes_read == cache.metrics.bytes_written == written
        assert cache.info().entry_bytes == sum(size_on_disk(len(data)) for data in entries.values())


def test_reader_waiting_for_an_entry_fetches_it_after_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "FETCH_PATIENCE_S", 0.0)
    with DiskCache(tmp_path, limit=LIMIT) as cache:

        def fetched() -> bytes:
            assert ask(cache, "key") == b"right"  # simulates another thread that requests the entry during this fetch
            assert ask(cache, "other") == b"right"
            return b"right"

        assert ask(cache, "key", fetch=fetched) == b"right"
        assert ask(cache, "key") == ask(cache, "other") == b"right"
        assert (cache.metrics.misses, cache.metrics.bypassed, cache.metrics.hits) == (3, 1, 2)


SIZES = st.lists(st.integers(1, 4), min_size=6, max_size=20)


def hits_of(cache: DiskCache, orders: list[np.ndarray[Any, Any]], blocks: list[int], *, announces: bool) -> list[Any]:
    """Return for each epoch whether each use was a hit; `blocks` has the size of each key, in pairs of disk blocks."""
    keys, found = [f"entry {number}" for number in range(len(blocks))], []
    for epoch, order in enumerate(orders):
        future = np.concatenate([order, *orders[epoch + 1 : epoch + 2]])
        with cache.announce(keys, future if announces else []) as announcement:
            of_epoch = []
            for place, number in enumerate(order.tolist()):
                announcement.move_to(place + 1)
                before = cache.metrics.hits
                data = bytes([number % 256]) * (blocks[number] * 8192 - entry_file.HEADER)
                assert ask(cache, keys[number], data) == data
                of_epoch.append(cache.metrics.hits > before)
        found.append(of_epoch)
    return found


@pytest.mark.parametrize("policy", ["belady", "lru"])
@given(blocks=SIZES, room=st.integers(8, 16), seed=st.integers(0, 99), is_static=st.booleans())
@settings(max_examples=25)
def test_disk_cache_hits_equal_the_simulated_ones(
    policy: Any, blocks: list[int], room: int, seed: int, is_static: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = np.random.default_rng(seed)
    order = random.permutation(len(blocks))
    orders = [order if is_static else random.permutation(len(blocks)) for _ in range(4)]
    limit = room * 8192 + table_bytes(64) + 4096  # one block for the announcement
    with DiskCache(tmp_path_factory.mktemp("cache"), limit=limit) as cache:
        found = hits_of(cache, orders, blocks, announces=policy == "belady")
    expected = simulate(orders, np.array(blocks), room, policy)
    assert found == [hits.tolist() for hits in expected]


@pytest.mark.parametrize("policy", ["belady", "lru"])
@given(room=st.integers(300, 700), seed=st.integers(0, 99), is_static=st.booleans())
@settings(max_examples=examples(20))
def test_disk_cache_hits_equal_the_simulated_ones_for_evictions_in_batches(
    policy: Any, room: int, seed: int, is_static: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    random = np.random.default_rng(seed)
    blocks = random.choice([3, 3, 3, 4, 9], 320)
    order = random.permutation(len(blocks))
    orders = [order if is_static else random.permutation(len(blocks)) for _ in range(3)]
    with_announcement = limit = room * 8192 + (8192 if policy == "belady" else 4096)
    while limit - table_bytes(slots_for(limit)) < with_announcement:
        limit += 4096
    with DiskCache(tmp_path_factory.mktemp("cache"), limit=limit) as cache:
        found = hits_of(cache, orders, blocks.tolist(), announces=policy == "belady")
    expected = simulate(orders, blocks * 8192, room * 8192, policy)
    assert found == [hits.tolist() for hits in expected]


def test_entry_outside_all_announced_access_orders_is_evicted_first(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=10 * 8192 + table_bytes(64) + 4096) as cache:
        data = bytes(8000)
        for number in range(10):
            ask(cache, f"{number}", data)
        with cache.announce([f"{number}" for number in range(8)], list(range(8))):
            assert cache.info().readers == 1
            ask(cache, "8", data)  # most recently used, but in no announced access order
            ask(cache, "more", data)
            for number in range(8):
                ask(cache, f"{number}", data)
        assert cache.metrics.hits == 9
        assert cache.info().readers == 0


def test_announced_access_order_takes_at_most_1_64_of_the_cache(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        keys = [f"{number}" for number in range(5_000)]
        with cache.announce(keys, np.arange(5_000)) as announcement:
            assert 500 < announcement.uses < 1_100
            announcement.move_to(10_000)
            assert bytes_at_one_moment(tmp_path) <= LIMIT
            assert bytes_at_one_moment(tmp_path / "petastore-cache-1/futures") <= LIMIT // 64


@pytest.mark.parametrize("order", [[3], [-2], [[0]]])
def test_announced_access_order_with_key_numbers_out_of_range_raises(tmp_path: Path, order: Any) -> None:
    with (
        DiskCache(tmp_path, limit=LIMIT) as cache,
        pytest.raises(InvalidArgumentError, match="integers from -1 to 2 for 3 keys, got"),
    ):
        cache.announce(["a", "b", "c"], order)


def test_number_of_cache_entries_is_limited_and_older_ones_are_evicted(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        for number in range(100):
            assert ask(cache, f"{number}", b"%d" % number) == b"%d" % number
        assert cache.info().entries == 64
        assert cache.metrics.bytes_evicted == 36 * 4096
        assert ask(cache, "99", b"wrong") == b"99"


def test_mapped_entry_stays_valid_after_eviction_and_close(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "key", bytes(range(256)))
        with cache.entry("key", bytes) as view:
            numbers = np.frombuffer(view, np.uint8)
            assert cache.clear() == 4096
            assert cache.info().entries == 0
    assert numbers.tolist() == list(range(256))


def test_entry_larger_than_the_cache_does_not_wait_for_another_reader(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        name = digest_of("large").hex()
        other = locked(tmp_path / "petastore-cache-1/writing" / name, patience=0)
        assert other is not None
        with other:  # simulates another reader that fetches the entry
            assert len(ask(cache, "large", bytes(LIMIT), size=LIMIT)) == LIMIT
        assert cache.metrics.bypassed == 1


def test_waiting_reader_gets_the_bytes_of_another_reader(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        began.set()
        assert go_on.wait(60)
        return b"fetched by the first"

    found: list[bytes] = []

    def first() -> None:
        with cache.entry("key", slow) as view:
            found.append(bytes(view))

    with DiskCache(tmp_path, limit=LIMIT) as cache:
        threads = [threading.Thread(target=first)]
        threads[0].start()
        assert began.wait(60)
        threads.append(threading.Thread(target=lambda: found.append(ask(cache, "key", b"fetched by the second"))))
        threads[1].start()
        assert ask(cache, "another", b"meanwhile") == b"meanwhile"
        go_on.set()
        for thread in threads:
            thread.join()
    assert found == [b"fetched by the first"] * 2


def test_waiting_reader_fetches_after_an_error_of_another_reader(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def fails() -> bytes:
        began.set()
        assert go_on.wait(60)
        raise ZeroDivisionError

    problems: list[BaseException] = []

    def first() -> None:
        try:
            with cache.entry("key", fails):
                pass
        except ZeroDivisionError as problem:
            problems.append(problem)

    with DiskCache(tmp_path, limit=LIMIT) as cache:
        thread = threading.Thread(target=first)
        thread.start()
        assert began.wait(60)
        found: list[bytes] = []
        second = threading.Thread(target=lambda: found.append(ask(cache, "key", b"by the second")))
        second.start()
        go_on.set()
        thread.join()
        second.join()
        assert (len(problems), found) == (1, [b"by the second"])
        assert ask(cache, "key", b"wrong") == b"by the second"


def test_entry_file_replaced_by_another_entry_is_detected(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "one", b"1" * 100)
        ask(cache, "two", b"2" * 100)
        paths = [Path(Folder(tmp_path / FOLDER).entry(digest_of(key).hex())) for key in ("one", "two")]
        paths[1].write_bytes(paths[0].read_bytes())
        assert ask(cache, "two", b"2" * 100) == b"2" * 100
        assert cache.metrics.damaged == 1
        assert cache.info().entries == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("place", ["write", "reserve", "hold"])
def test_failing_disk_is_bypassed_with_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, place: str
) -> None:
    def refuses(*args: Any, **more: Any) -> Any:
        raise OSError(number, os.strerror(number))

    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "kept", b"kept")
        with monkeypatch.context() as patch:
            patch.setattr(*{
                "write": (entry_file, "write_all"), "reserve": (os, "ftruncate"), "hold": (entries, "locked")
            }[place], refuses)  # fmt: skip
            with pytest.warns(CacheBypassWarning, match=os.strerror(number)) as told:
                found = [ask(cache, "key") for _ in range(3)]
            assert found == [b"right"] * 3
            assert len(told) == 1
            assert ask(cache, "kept", b"wrong") == b"kept"
        assert cache.metrics.bypassed == 3
        assert list((tmp_path / "petastore-cache-1/writing").iterdir()) == []
        assert ask(cache, "key") == b"right"  # the disk works again, so the entry is stored
        assert ask(cache, "key", b"wrong") == b"right"
        assert cache.info().entries == 2


def test_read_only_cache_is_read_and_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "kept", b"kept")

    def refuses(*args: Any, **more: Any) -> Any:
        raise PermissionError(errno.EROFS, "read-only")

    monkeypatch.setattr(ledger, "locked", refuses)
    with pytest.warns(CacheBypassWarning, match="read-only"):
        cache = DiskCache(tmp_path, limit=LIMIT)
    assert ask(cache, "kept", b"wrong") == b"kept"  # a second warning would raise, because warnings are errors in tests
    assert ask(cache, "key") == ask(cache, "key") == b"right"
    cache.announce(["key"], [0]).close()
    assert (cache.metrics.hits, cache.metrics.bypassed) == (1, 2)
    with pytest.raises(StorageError, match="read-only"):
        cache.info()


def test_location_that_is_not_a_directory_is_bypassed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(CacheBypassWarning, match="file"):
        cache = DiskCache(tmp_path / "file", limit=LIMIT)
    assert ask(cache, "key") == b"right"


def test_cache_is_bypassed_for_a_minute_when_its_lock_is_held_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(entries, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(ledger, "LOCK_PATIENCE_S", 0.01)
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "kept", b"kept")
        other = locked(tmp_path / "petastore-cache-1/lock", patience=0)
        assert other is not None
        with other:
            with pytest.warns(CacheBypassWarning, match="other processes have held the lock of the cache"):
                assert ask(cache, "one") == b"right"
            monkeypatch.setattr(ledger, "LOCK_PATIENCE_S", 60.0)
            assert ask(cache, "two") == b"right"  # without waiting for the lock again
            assert ask(cache, "kept", b"wrong") == b"kept"
        assert cache.metrics.bypassed == 2
        clock.now += 61
        assert ask(cache, "two", b"now") == ask(cache, "two") == b"now"


def test_cache_bypass_warning_turned_into_an_error_is_raised_in_the_caller(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheBypassWarning):  # warnings are errors in tests
        DiskCache(tmp_path / "file", limit=LIMIT)


def damages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096 : 4096 + 64 * 16] = bytes(range(256)) * 4  # overwrite the digests
    path.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        damages,
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"nonsense" * 1024),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
    ],
)
def test_damaged_cache_ledger_is_rebuilt_from_the_entry_files(tmp_path: Path, damage: Any) -> None:
    source = Source()
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        for number in range(10):
            ask(cache, f"{number}", source.content(f"{number}", 50_000))
        before = cache.info()
    damage(tmp_path / "petastore-cache-1/ledger")
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        assert cache.info() == before
        for number in range(10):
            assert ask(cache, f"{number}", b"wrong") == source.content(f"{number}", 50_000)
        for number in range(40):
            ask(cache, f"more {number}", bytes(50_000))
            assert bytes_at_one_moment(tmp_path) <= LIMIT


def test_cache_stays_within_its_limit_when_its_ledger_is_damaged(tmp_path: Path) -> None:
    limit = 300_000
    with DiskCache(tmp_path, limit=limit) as cache:
        for number in range(6):
            ask(cache, f"{number}", bytes(40_000))
    path = tmp_path / "petastore-cache-1/ledger"
    random = np.random.RandomState(3)
    for damage in range(60):
        data = bytearray(path.read_bytes())
        place = random.randint(len(data)) if damage % 2 else 4096 + random.randint(6) + 64 * 8 * random.randint(6)
        data[place] ^= random.randint(1, 256)
        path.write_bytes(data)
        with DiskCache(tmp_path, limit=limit) as cache:
            for number in range(3):
                ask(cache, f"{damage} {number}", bytes(40_000))
                assert bytes_at_one_moment(tmp_path) <= limit


def test_removed_entries_are_fetched_again(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        for _ in range(5):
            ask(cache, "key", bytes(10_000))
            Path(Folder(tmp_path / FOLDER).entry(digest_of("key").hex())).unlink()
        ask(cache, "key", bytes(10_000))
        assert cache.info().entries == 1


def test_prune_removes_files_that_are_not_cache_entries(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "key")
        ask(cache, "gone", bytes(10_000))
        root = tmp_path / "petastore-cache-1"
        Path(Folder(tmp_path / FOLDER).entry(digest_of("gone").hex())).unlink()
        (root / "entries/ab").mkdir(exist_ok=True)
        for name in ("entries/ab/nonsense", "entries/ab/cd" + "0" * 30, "entries/file", "writing/0", "futures/1"):
            (root / name).write_bytes(bytes(5_000))
        assert cache.prune() == size_on_disk(10_000)
        assert cache.info().entries == 1
        assert ask(cache, "key", b"wrong") == b"right"
        left = {path.name for path in root.rglob("*") if path.is_file()}
        assert left == {"lock", "ledger", digest_of("key").hex()}


def test_smaller_cache_limit_applies_to_already_open_caches_at_once(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        for number in range(20):
            ask(cache, f"{number}", bytes(45_000))
        ask(cache, "0", b"wrong")
        with DiskCache(tmp_path, limit=LIMIT // 4) as smaller:
            assert bytes_at_one_moment(tmp_path) <= LIMIT // 4
            assert smaller.info().limit == cache.info().limit == LIMIT // 4
            assert len(ask(smaller, "0", b"wrong")) == 45_000  # most recently used, so it was kept
            ask(cache, "more", bytes(45_000))
            assert bytes_at_one_moment(tmp_path) <= LIMIT // 4
        with DiskCache(tmp_path) as whatever:
            assert whatever.info().limit == LIMIT // 4


def test_cache_files_are_private_to_the_user(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with DiskCache(tmp_path, limit=LIMIT) as cache:
            ask(cache, "key")
    finally:
        os.umask(before)
    paths = list((tmp_path / "petastore-cache-1").rglob("*"))
    assert len([path for path in paths if path.is_file()]) >= 2
    for path in paths:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)


def test_pickled_cache_is_reopened_in_another_process(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "key")
        data = pickle.dumps(cache)
    with pickle.loads(data) as again:  # noqa: S301 - our own
        assert ask(again, "key", b"wrong") == b"right"
        assert again.info().limit == LIMIT


def test_closed_cache_can_be_used_again(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, limit=LIMIT)
    for _ in range(2):
        ask(cache, "key")
        cache.close()
        cache.close()
    assert cache.metrics.hits == 1


def test_disk_cache_invalid_arguments_raise(tmp_path: Path) -> None:
    for limit in (0, -1, True, "1 gig", 1.5):
        with pytest.raises(InvalidArgumentError, match="cache_size_limit must be"):
            DiskCache(tmp_path, limit=limit)  # type: ignore[arg-type]
    for location in ("", 7, "s3://bucket/x"):
        with pytest.raises(
            InvalidArgumentError,
            match="cache_location must be a local directory, or None .*, got " + re.escape(repr(location)),
        ):
            DiskCache(location)  # type: ignore[arg-type]


def test_forked_child_continues_with_the_inherited_cache(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache, cache.announce(["key"], [0, 0]) as announcement:
        ask(cache, "key")
        child = os.fork()
        if child == 0:
            announcement.move_to(1)
            announcement.close()
            right = ask(cache, "key", b"wrong") == b"right" and ask(cache, "more") == b"right"
            os._exit(0 if right and cache.info().readers == 1 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert ask(cache, "more", b"wrong") == b"right"
        assert cache.info().readers == 1


def test_forked_child_reads_the_cache_while_a_parent_thread_was_fetching(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow() -> bytes:
        began.set()
        assert go_on.wait(60)
        return b"right"

    with DiskCache(tmp_path, limit=LIMIT) as cache:
        thread = threading.Thread(target=lambda: cache.entry("key", slow).__enter__())
        thread.start()
        assert began.wait(60)
        child = os.fork()
        if child == 0:
            os._exit(0 if ask(cache, "another") == b"right" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        go_on.set()
        thread.join()
        assert ask(cache, "key", b"wrong") == b"right"


def test_default_limit_is_a_share_of_the_free_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "limit_of_free_disk", lambda _: 777_777)
    with DiskCache(tmp_path) as cache:
        assert cache.info().limit == 777_777
    assert cache_location(None) == Path(os.environ["PETASTORE_CACHE"])


def several(cache: DiskCache, data: dict[str, bytes], fetched: list[str], size: int | None = None) -> list[bytes]:
    keys = list(data)

    def fetch(numbers: Any) -> list[bytes]:
        assert list(numbers) == sorted(numbers)
        fetched.extend(keys[number] for number in numbers)
        return [data[keys[number]] for number in numbers]

    with cache.entries(keys, fetch, sizes=[size] * len(keys)) as views:
        return [bytes(view) for view in views]


@given(
    asked=st.lists(st.sets(st.integers(0, 200), max_size=130), max_size=5),
    known_sizes=st.booleans(),
)
@settings(max_examples=20)
def test_cache_request_of_several_keys_fetches_each_missing_key_once(
    asked: list[set[int]], known_sizes: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fetched: list[str] = []
    with DiskCache(tmp_path_factory.mktemp("cache"), limit=LIMIT * 2) as cache:
        for numbers in asked:
            data = {f"{number}": bytes([number]) * 1000 for number in numbers}
            assert several(cache, data, fetched, 1000 if known_sizes else None) == list(data.values())
        assert sorted(fetched, key=int) == [f"{number}" for number in sorted(set().union(*asked))]
        assert cache.metrics.misses == cache.info().entries == len(fetched)
        assert cache.metrics.hits == sum(map(len, asked)) - len(fetched)
        for key in fetched:
            assert ask(cache, key, b"never") == bytes([int(key)]) * 1000


def test_same_keys_in_another_order_do_not_deadlock(tmp_path: Path) -> None:
    fetched: list[str] = []
    data = {f"{number}": bytes([number]) * 100 for number in range(60)}
    with DiskCache(tmp_path, limit=LIMIT) as cache:

        def work(number: int) -> None:
            keys = np.random.default_rng(number).permutation(60)[:40].tolist()
            for first in (0, 20):
                wanted = {f"{key}": data[f"{key}"] for key in keys[first : first + 20]}
                assert several(cache, wanted, fetched) == list(wanted.values())

        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert len(fetched) == len(set(fetched))


def test_failed_fetch_of_several_keys_returns_none_of_them(tmp_path: Path) -> None:
    def fails(numbers: Any) -> list[bytes]:
        raise StorageError("gone")

    with DiskCache(tmp_path, limit=LIMIT) as cache:
        ask(cache, "a")
        with pytest.raises(StorageError, match="gone"), cache.entries(["a", "b"], fails, sizes=[None, None]):
            pass
        assert ask(cache, "b", b"later") == b"later"
        assert list((tmp_path / "petastore-cache-1/writing").iterdir()) == []


def test_discarded_entry_is_fetched_again_without_a_hit(tmp_path: Path) -> None:
    with DiskCache(tmp_path, limit=LIMIT) as cache:
        with cache.entry("a", lambda: b"wrong") as fetched, cache.entry("a", lambda: b"never") as view:
            cache.discard(["a", "never was"])
            assert bytes(fetched) == bytes(view) == b"wrong"
        assert cache.info().entry_bytes == 0
        assert ask(cache, "a", b"right") == b"right"
        assert cache.metrics.damaged == 0
