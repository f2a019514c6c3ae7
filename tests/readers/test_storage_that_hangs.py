"""Tests of storage that hangs: `storage_timeout`, `stop`, Ctrl-C and program exit end the wait.

An `AbandonedThreadWarning` is an error here, so no worker is left behind: only the request that hangs.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField, make_batch_reader, make_reader, open_dataset, write_dataset
from petastore.errors import ReaderClosedError, StorageTimeoutError
from tests.pace import LONG
from tests.readers.hanging import HangingFileSystem
from tests.warm_interpreters import WarmInterpreter

ROWS = 400
LIMITS_S = (0.3, 3.0, 30.0)
"""Values of `storage_timeout`; the next one is tried if the machine was too busy for the previous one."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("hanging") / "numbers")
    schema = Unischema("Numbers", [UnischemaField("id", np.int64), UnischemaField("wave", np.float32, (8,))])
    rows = ({"id": i, "wave": np.full(8, i, np.float32)} for i in range(ROWS))
    write_dataset(folder, schema, rows, rows_per_row_group=20, rows_per_file=100)
    return folder


@pytest.fixture(scope="module")
def plain(url: str) -> str:
    """Copy the files without a manifest, so that footers are read."""
    folder = Path(url).parent / "plain"
    folder.mkdir()
    for file in Path(url).glob("*.parquet"):
        (folder / file.name).write_bytes(file.read_bytes())
    return str(folder)


@pytest.fixture
def storage() -> Iterator[HangingFileSystem]:
    """Yield a hanging storage; answer all requests afterwards, so that no thread outlives the test."""
    filesystem = HangingFileSystem()
    yield filesystem
    filesystem.answer.set()


def timeout_of(run: Callable[[HangingFileSystem, float], object]) -> StorageTimeoutError:
    """Return the timeout error of reading from storage that hangs.

    On a busy machine even an answered request may take as long as the limit. Then a higher limit is tried.
    """
    for limit_s in LIMITS_S:
        storage = HangingFileSystem()
        try:
            with pytest.raises(StorageTimeoutError, match="storage_timeout=") as caught:
                run(storage, limit_s)
        finally:
            storage.answer.set()
        assert f"did not respond within {limit_s:g} s" in str(caught.value)
        if storage.hangs.is_set():
            return caught.value
    raise AssertionError(f"no request came to the one that hangs within {LIMITS_S[-1]:g} s")


@pytest.mark.parametrize("at", ["look", "open", "read"])
@pytest.mark.parametrize("after", range(3))
def test_storage_timeout_ends_opening(plain: str, at: str, after: int) -> None:
    def run(storage: HangingFileSystem, limit_s: float) -> None:
        storage.at, storage.left = at, after
        open_dataset(plain, filesystem=storage, storage_timeout=limit_s)

    timeout_of(run)


@pytest.mark.parametrize("at", ["open", "read"])
@pytest.mark.parametrize("pool", ["thread", "process", "dummy"])
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_storage_timeout_ends_reading(url: str, at: str, pool: str, make: Any) -> None:
    def run(storage: HangingFileSystem, limit_s: float) -> None:
        with make(url, reader_pool_type=pool, filesystem=storage, storage_timeout=limit_s) as reader:
            storage.at, storage.left = at, 5
            list(reader)

    problem = timeout_of(run)
    assert isinstance(problem, TimeoutError)
    assert "numbers" in str(problem)


def test_storage_timeout_ends_a_filter(url: str) -> None:
    def run(storage: HangingFileSystem, limit_s: float) -> None:
        storage.at, storage.left = "read", 4
        make_reader(
            url,
            filesystem=storage,
            storage_timeout=limit_s,
            predicate=lambda row: row["wave"][0] > 3,
            filter_cache=False,
        )

    timeout_of(run)


@pytest.mark.parametrize("batched", [False, True])
def test_stop_wakes_the_consumer_while_storage_hangs(url: str, storage: HangingFileSystem, batched: bool) -> None:
    """`stop` wakes the consumer and ends the reader before storage answers."""
    make = make_batch_reader if batched else make_reader
    reader = make(url, filesystem=storage, storage_timeout=None)
    storage.at, storage.left = "read", 5

    def consume() -> None:
        with contextlib.suppress(ReaderClosedError):
            for _ in reader:
                pass

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert storage.hangs.wait(LONG)
    reader.stop()
    consumer.join(LONG)
    assert not consumer.is_alive()
    reader.join()
    assert not storage.answer.is_set()


def test_late_storage_responses_are_ignored(url: str) -> None:
    before = set(threading.enumerate())

    def run(storage: HangingFileSystem, limit_s: float) -> None:
        try:
            with make_reader(url, filesystem=storage, storage_timeout=limit_s) as reader:
                storage.at = "read"
                next(reader)
        finally:
            storage.at = None
            # The request of the other reader still hangs.
            with make_reader(url, filesystem=storage, storage_timeout=None) as reader:
                assert sorted(int(row.id) for row in reader) == list(range(ROWS))

    timeout_of(run)
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
    assert set(threading.enumerate()) <= before


def test_storage_timeout_must_be_above_0_or_none(url: str) -> None:
    for wrong in (0, -1, float("nan"), "5", True):
        with pytest.raises(petastore.errors.InvalidArgumentError, match="storage_timeout"):
            make_reader(url, storage_timeout=wrong)  # type: ignore[arg-type]
    with make_reader(url, storage_timeout=None) as reader:
        assert len(list(reader)) == ROWS


PROGRAM = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs tests in the background may have it ignored
import petastore
from tests.readers.hanging import HangingFileSystem
at, after, pool, url = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
storage = HangingFileSystem()
if after < 0:
    storage.at = at
threading.Thread(target=lambda: (storage.hangs.wait(), print("hangs", flush=True)), daemon=True).start()
with petastore.make_reader(url, reader_pool_type=pool, filesystem=storage, storage_timeout=None) as reader:
    storage.at, storage.left = at, after
    for row in reader:
        pass
"""


@pytest.mark.parametrize(
    ("at", "after", "pool"),
    [
        ("read", 5, "thread"),
        ("open", 1, "thread"),
        ("read", 5, "dummy"),
        ("look", -1, "thread"),
        ("read", 5, "process"),
    ],
)
def test_ctrl_c_ends_a_program_with_hanging_storage(
    url: str, warm_python: WarmInterpreter, at: str, after: int, pool: str
) -> None:
    with warm_python.start(PROGRAM, at, after, pool, url) as program:
        try:
            assert program.stdout.readline() == "hangs\n"
            program.send_signal(signal.SIGINT)
            _, said = program.communicate(timeout=LONG)
        finally:
            program.kill()
    assert said.rstrip().endswith("KeyboardInterrupt"), said
    assert program.returncode == -signal.SIGINT
