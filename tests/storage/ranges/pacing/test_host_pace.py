"""Processes of one host that a storage refuses slow down together, and lose no row."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore.cache.locks import locked
from petastore.storage.ranges.pacing.host_pace import HostPace, pace_file
from tests.forked import forked
from tests.pace import patience
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

pytestmark = pytest.mark.usefixtures("real_backoff")
GROUPS, PROCESSES, PER_S = 120, 4, 150.0
NEEDED = GROUPS * PROCESSES


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.timeout(240)
def test_readers_that_are_throttled_slow_down_together(served: Served, proxy: FaultProxy, tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << 40, GROUPS * 400)
    name = f"{uuid.uuid4().hex}.parquet"
    table = pa.table({"id": numbers})
    pq.write_table(table, served.root / name, row_group_size=400, compression="none", use_dictionary=False)
    found = read_at_once(proxy, f"{proxy.url}/{name}", tmp_path)
    assert [one["rows"] for one in found] == [len(numbers)] * PROCESSES
    assert [one["sum"] for one in found] == [int(numbers.sum())] * PROCESSES
    refused = proxy.counted.faults["throttled"]
    assert sum(one["requests"] for one in found) == proxy.counted.requests == NEEDED + refused
    assert refused <= 0.15 * NEEDED


def read_at_once(proxy: FaultProxy, url: str, folder: Path) -> list[dict[str, Any]]:
    """What several processes read of a server that has time for so many requests a second."""
    proxy.begin(Faults())
    command = [sys.executable, "-m", "tests.storage.ranges.pacing.throttled_reader", url]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with contextlib.ExitStack() as running:
        started = [
            running.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
            )
            for _ in range(PROCESSES)
        ]
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        proxy.begin(Faults(most_per_s=PER_S))
        for one in started:
            assert one.stdin is not None
            one.stdin.close()
        told = [one.stdout.read() for one in started if one.stdout is not None]
        assert [one.wait(patience(60)) for one in started] == [0] * PROCESSES
    return [json.loads(one) for one in told]


class Clock:
    """Stands still."""

    def __init__(self) -> None:
        self.now = time.monotonic()

    def __call__(self) -> float:
        return self.now


NOT_OVER = threading.Event()


class Noted(threading.Event):
    """An event that is never set, and notes how long callers would wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        return False


def test_nothing_is_written_and_nobody_waits_while_nobody_is_refused(tmp_path: Path) -> None:
    pace = HostPace(tmp_path / "pace")
    for _ in range(100):
        assert pace.wait(NOT_OVER)
        pace.answered()
    assert list(tmp_path.iterdir()) == []
    assert not pace.is_limited


def test_others_learn_of_a_refusal_and_it_is_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    one, other, late = (HostPace(tmp_path / "pace", clock) for _ in range(3))
    for _ in range(20):
        assert one.wait(NOT_OVER)
    assert other.wait(NOT_OVER)
    one.refused()
    clock.now += 0.3
    assert other.wait(NOT_OVER)
    assert other.is_limited
    assert late.wait(NOT_OVER)
    assert late.is_limited
    clock.now += 100
    for pace in (one, other, late):
        assert pace.wait(NOT_OVER)
        assert not pace.is_limited
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_waited_for_who_was_stopped_with_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "pace"
    pace = HostPace(path)
    held = locked(path, patience=0)
    assert held is not None
    with held:
        pace.refused()
        assert pace.is_limited  # by itself
        assert pace.wait(NOT_OVER)
    assert pace.wait(NOT_OVER)


def test_who_is_killed_with_the_lock_leaves_it_to_the_others(tmp_path: Path) -> None:
    path = tmp_path / "pace"

    def killed() -> None:
        held = locked(path, patience=0)
        assert held is not None
        os.pwrite(held.fd, b"petapac1 half of", 0)
        os.kill(os.getpid(), signal.SIGKILL)

    _, status = os.waitpid(forked(killed), 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    clock = Clock()
    one, other = HostPace(path, clock), HostPace(path, clock)
    for _ in range(20):
        assert one.wait(NOT_OVER)
    one.refused()
    assert other.wait(NOT_OVER)
    assert other.is_limited


def test_a_wait_ends_when_nobody_wants_the_answer_any_more(tmp_path: Path) -> None:
    pace, over = HostPace(tmp_path / "pace", Clock()), threading.Event()
    pace.refused()
    threading.Timer(0.05, over.set).start()
    while pace.wait(over):
        pass
    assert over.is_set()


@pytest.mark.parametrize("data", [b"", b"noise", b"petapac1" + bytes(64), b"\xff" * 72])
def test_what_somebody_wrote_there_is_passed_over(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "pace"
    path.write_bytes(data)
    pace = HostPace(path)
    assert pace.wait(NOT_OVER)
    assert not pace.is_limited
    assert not path.exists()


def test_where_no_file_can_be_each_goes_by_itself(tmp_path: Path) -> None:
    pace = HostPace(tmp_path / "nowhere" / "pace")
    pace.refused()
    assert pace.is_limited
    assert pace.wait(NOT_OVER)


def test_the_file_is_one_for_a_storage_in_a_folder_of_the_users_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = pace_file("s3", "bucket")
    assert path is not None
    assert path == pace_file("s3", "bucket")
    assert path != pace_file("s3", "another")
    assert "bucket" not in path.name
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.parent.chmod(0o777)
    assert pace_file("s3", "bucket") is None
    path.parent.rmdir()
    path.parent.symlink_to(tmp_path)
    assert pace_file("s3", "bucket") is None


def test_two_of_one_process_have_their_own_turns(tmp_path: Path) -> None:
    clock = Clock()
    paces = [HostPace(tmp_path / "pace", clock) for _ in range(2)]
    for pace in paces:
        for _ in range(20):
            assert pace.wait(NOT_OVER)
    paces[0].refused()
    paces[1].refused()
    turns = Noted()
    for number in range(6):
        assert paces[number % 2].wait(turns)
    begins = turns.waits
    assert len(begins) == 6
    assert begins == sorted(begins)
    assert begins[5] - begins[0] == pytest.approx(5 / 28)  # 0.7 of what both have made
