"""Tests of fetching byte ranges: retries, deadlines, throttling, and bytes of a single file version."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from petastore.errors import (
    DatasetChangedError,
    DecodeError,
    FileMissingError,
    ReaderClosedError,
    StorageConnectionError,
    StorageError,
    StorageTimeoutError,
)
from petastore.storage.ranges.fetch import ByteRange, FetchedRanges, RangeFetcher
from petastore.storage.ranges.request_counts import RequestCounts
from petastore.storage.stores.interface import Answer, FileVersion, Store
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served
from tests.storage.ranges.conftest import Fetcher, location_of

pytestmark = pytest.mark.server
DATA = np.random.default_rng(7).bytes(20_000_000)
NAME = "bucket/numbers.bin"
KEYS = {"key": "AKIA", "secret": "hush"}
SCHEMES = ["http", "s3"]


@pytest.fixture
def file(served: Served) -> Path:
    path = served.root / NAME
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(DATA)
    return path


@pytest.fixture
def opened(request: pytest.FixtureRequest, proxy: FaultProxy, file: Path, fetcher: Fetcher) -> RangeFetcher:
    return open_at(proxy, fetcher, getattr(request, "param", "http"))


def open_at(proxy: FaultProxy, fetcher: Fetcher, scheme: str = "http", timeout_s: float = 60.0) -> RangeFetcher:
    if scheme == "http":
        return fetcher(location_of(f"{proxy.url}/bucket", timeout_s=timeout_s))
    return fetcher(location_of("s3://bucket", timeout_s=timeout_s, endpoint_url=proxy.url, **KEYS))


def ranges(count: int, seed: int = 0) -> list[ByteRange]:
    """Return up to 17 ranges, so far apart that each takes its own request."""
    first = int(np.random.default_rng(seed).integers(0, 10_000))
    return [ByteRange(first + number * 1_150_000, 30_000) for number in range(count)]


def check(fetched: FetchedRanges, asked: list[ByteRange]) -> None:
    for one in asked:
        assert fetched.read(*one).to_pybytes() == DATA[one.offset : one.end]


@pytest.mark.parametrize("opened", SCHEMES, indirect=True)
def test_fetch_coalesces_ranges(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    assert version.size == len(DATA)
    asked = [ByteRange(first, 1000) for first in (0, 2000, 9_000_000, 9_001_000, 19_999_000)]
    fetched = opened.fetch("numbers.bin", version, asked)
    check(fetched, asked)
    assert proxy.counted.requests == 1 + 3
    assert proxy.counted.bytes == 1 + fetched.nbytes == 1 + 3000 + 2000 + 1000
    assert opened.counts == RequestCounts(4, fetched.nbytes)


@pytest.mark.parametrize("opened", SCHEMES, indirect=True)
def test_fetch_returns_correct_bytes_on_an_unreliable_network(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    made = 0
    for seed in range(20):
        proxy.begin(Faults(reset=0.04, throttled=0.04, truncated=0.02, cut=0.02, failed=0.02, seed=seed))
        asked = ranges(17, seed=seed)
        check(opened.fetch("numbers.bin", version, asked), asked)
        made += sum(proxy.counted.faults.values())
    assert made > 20
    assert opened.counts.again >= made  # a broken connection may fail one more request


@pytest.mark.parametrize("opened", SCHEMES, indirect=True)
def test_fetch_of_a_changed_file_raises_with_both_versions(opened: RangeFetcher, file: Path) -> None:
    version = opened.version_of("numbers.bin")
    asked = ranges(17)
    check(opened.fetch("numbers.bin", version, asked), asked)
    file.write_bytes(DATA[::-1])
    with pytest.raises(DatasetChangedError) as raised:
        opened.fetch("numbers.bin", version, asked)
    now = opened.version_of("numbers.bin")
    assert version.etag in str(raised.value)
    assert now.etag in str(raised.value)


@pytest.mark.parametrize("opened", SCHEMES, indirect=True)
def test_fetch_never_mixes_a_replaced_file(opened: RangeFetcher, file: Path) -> None:
    version = opened.version_of("numbers.bin")

    def replace() -> None:
        aside = file.with_suffix(".aside")
        for data in (bytes(len(DATA)), DATA, bytes(len(DATA))):
            aside.write_bytes(data)
            aside.replace(file)

    asked = ranges(17)
    for _ in range(3):
        file.write_bytes(DATA)
        writer = threading.Thread(target=replace)
        writer.start()
        try:
            check(opened.fetch("numbers.bin", version, asked), asked)
        except DatasetChangedError as problem:
            assert version.etag in str(problem)  # noqa: PT017 - right bytes are as good
        writer.join()
    with pytest.raises(DatasetChangedError):
        opened.fetch("numbers.bin", version, asked)


def test_fetch_checks_the_etag_of_the_response(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    proxy.begin(Faults(wrong_etag=1.0))
    with pytest.raises(DatasetChangedError, match="somebody-elses"):
        opened.fetch("numbers.bin", version, ranges(3))


def test_fetch_of_a_shorter_file_raises(opened: RangeFetcher, file: Path) -> None:
    version = FileVersion(len(DATA))  # the version on storage without etags
    file.write_bytes(DATA[:1000])
    with pytest.raises(DatasetChangedError, match=r"20,000,000 bytes, and has 1,000 bytes"):
        opened.fetch("numbers.bin", version, [ByteRange(5000, 100)])
    with pytest.raises(DatasetChangedError, match=r"20,000,000 bytes, and has 1,000 bytes"):
        opened.fetch("numbers.bin", version, [ByteRange(900, 200)])


def test_fetch_ends_a_hanging_request_at_the_deadline(proxy: FaultProxy, file: Path, fetcher: Fetcher) -> None:
    version = open_at(proxy, fetcher).version_of("numbers.bin")
    opened = open_at(proxy, fetcher, timeout_s=1.0)
    proxy.begin(Faults(hangs=1.0))  # until the proxy is closed
    with pytest.raises(StorageTimeoutError, match=r"read numbers\.bin"):
        opened.fetch("numbers.bin", version, ranges(17))
    proxy.begin(Faults())
    for attempt in range(20):  # a busy machine may need more than a second
        try:
            check(opened.fetch("numbers.bin", version, ranges(5)), ranges(5))
        except StorageTimeoutError:
            assert attempt < 19, "requests that hang take the place of new ones"
        else:
            break


def test_fetch_retries_a_hanging_request_before_the_deadline(proxy: FaultProxy, file: Path, fetcher: Fetcher) -> None:
    version = open_at(proxy, fetcher).version_of("numbers.bin")
    opened = open_at(proxy, fetcher, timeout_s=8.0)  # one attempt may take a quarter of that
    proxy.begin(Faults(first="hangs"))
    check(opened.fetch("numbers.bin", version, ranges(1)), ranges(1))
    assert proxy.counted.faults["hangs"] == 1


def test_fetch_close_wakes_waiters(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    proxy.begin(Faults(hangs=1.0))
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            opened.fetch("numbers.bin", version, ranges(3))
        except ReaderClosedError as problem:
            raised.append(problem)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while proxy.counted.requests < 3:
        assert waiting.is_alive()
    opened.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert len(raised) == 1
    with pytest.raises(ReaderClosedError):
        opened.version_of("numbers.bin")


def test_fetch_error_has_the_number_of_attempts(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    proxy.begin(Faults(reset=1.0))
    with pytest.raises(StorageConnectionError, match=r"it was tried 10 times within \d+\.\d s"):
        opened.fetch("numbers.bin", version, ranges(1))
    assert proxy.counted.requests == 10


def test_fetch_error_distinguishes_throttling(proxy: FaultProxy, file: Path, fetcher: Fetcher) -> None:
    opened = open_at(proxy, fetcher)
    version = opened.version_of("numbers.bin")
    proxy.begin(Faults(throttled=1.0))
    with pytest.raises(StorageError, match=r"SlowDown.*throttles requests\. Try again later") as raised:
        opened.fetch("numbers.bin", version, ranges(1))
    assert not isinstance(raised.value, (StorageConnectionError, StorageTimeoutError))


def test_fetch_of_a_missing_file_raises_at_once(opened: RangeFetcher, proxy: FaultProxy, file: Path) -> None:
    version = opened.version_of("numbers.bin")
    file.unlink()
    with pytest.raises(FileMissingError, match=r"numbers\.bin is missing"):
        opened.fetch("numbers.bin", version, ranges(1))
    assert proxy.counted.requests == 2


def test_fetch_memory_is_bounded(opened: RangeFetcher, proxy: FaultProxy) -> None:
    version = opened.version_of("numbers.bin")
    with pytest.raises(
        DecodeError,
        match=r"^numbers\.bin: the columns of a row group must have at most 1,999,999 stored bytes, got 2,000,000",
    ):
        opened.fetch("numbers.bin", version, [ByteRange(0, 2_000_000)], most_bytes=1_999_999)
    assert proxy.counted.requests == 1


@pytest.mark.slow
@pytest.mark.usefixtures("real_backoff")
def test_fetch_reduces_concurrency_when_throttled() -> None:
    client = Crowded(most=3)
    fetcher = RangeFetcher(location_of("http://127.0.0.1:1/bucket"), client, concurrency=16)
    fetched = [fetcher.fetch("numbers.bin", FileVersion(len(DATA)), ranges(17)) for _ in range(4)]
    for one in fetched:
        check(one, ranges(17))
    # At first sixteen requests were sent at a time, of which three were answered.
    assert client.refused < fetcher.counts.requests / 2
    fetcher.close()


class Crowded(Store):
    """A client of a storage that answers a few concurrent requests, and throttles all others."""

    system = "Storage"

    def __init__(self, most: int) -> None:
        self._places = threading.Semaphore(most)
        self.refused = 0

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002
        if not self._places.acquire(blocking=False):
            self.refused += 1
            raise OSError("HTTP status 503 (SlowDown)")
        try:
            threading.Event().wait(0.005)  # the duration of an answer
            return Answer(DATA[offset : offset + length], version)
        finally:
            self._places.release()

    def tail(self, path: str, length: int) -> Answer:
        return self.get(path, len(DATA) - length, length, self.version(path))

    def version(self, path: str) -> FileVersion:  # noqa: ARG002
        return FileVersion(len(DATA))


class WholeFiles(Store):
    """A client of a server that ignores ranges and returns whole files."""

    system = "Server"

    def get(self, path: str, offset: int, length: int, version: FileVersion | None) -> Answer:  # noqa: ARG002
        return Answer(DATA, None)

    def version(self, path: str) -> FileVersion:  # noqa: ARG002
        return FileVersion(len(DATA))


def test_fetch_raises_for_a_server_without_ranges() -> None:
    fetcher = RangeFetcher(location_of("http://127.0.0.1:1/bucket"), WholeFiles())
    with pytest.raises(StorageError, match="does not support HTTP range requests"):
        fetcher.fetch("numbers.bin", FileVersion(len(DATA)), [ByteRange(100, 5)])
    assert fetcher.counts.requests == 1
    fetcher.close()


def test_fetch_is_thread_safe(opened: RangeFetcher) -> None:
    version = opened.version_of("numbers.bin")
    problems: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(5):
                asked = ranges(7, seed=100 * seed + number)
                check(opened.fetch("numbers.bin", version, asked), asked)
        except BaseException as problem:  # noqa: BLE001 - it is looked at below
            problems.append(problem)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert problems == []


def test_fetch_of_a_suffix_returns_size_and_version(opened: RangeFetcher) -> None:
    for length in (1, 1000, len(DATA), len(DATA) + 5):
        found = opened.tail("numbers.bin", length)
        got = min(length, len(DATA))
        assert found.size == len(DATA)
        assert found.version.is_same(opened.version_of("numbers.bin"))
        assert found.read(len(DATA) - got, got).to_pybytes() == DATA[len(DATA) - got :]
    with pytest.raises(FileMissingError):
        opened.tail("gone.bin", 10)
