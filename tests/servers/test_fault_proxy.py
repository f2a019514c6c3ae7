"""Tests of the fault proxy: it injects the requested faults, reproducibly by seed, and forwards all else."""

from __future__ import annotations

import http.client
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

pytestmark = pytest.mark.server
DATA = bytes(range(256)) * 400


@pytest.fixture
def file(served: Served) -> Path:
    path = served.root / "some.bin"
    path.write_bytes(DATA)
    return path


def only(fault: str) -> Faults:
    always: dict[str, Any] = {fault: 1.0}
    return Faults(**always)


def get(proxy: FaultProxy, first: int, last: int, **fields: str) -> tuple[int, bytes, str]:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.port, timeout=60)
    try:
        connection.request("GET", "/some.bin", headers={"Range": f"bytes={first}-{last}", **fields})
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers.get("ETag", "")
    finally:
        connection.close()


def test_fault_proxy_passes_and_counts_ranges(proxy: FaultProxy, file: Path) -> None:
    assert get(proxy, 100, 299)[:2] == (206, DATA[100:300])
    assert (proxy.counted.requests, proxy.counted.bytes) == (1, 200)
    assert proxy.counted.heads == ["GET /some.bin HTTP/1.1 bytes=100-299"]


def test_fault_proxy_counts_a_body_before_sending_the_head(proxy: FaultProxy, file: Path) -> None:
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.sendall(b"GET /some.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=0-99999\r\n\r\n")
        assert connection.recv(1)
        assert proxy.counted.bytes == 100_000


def test_fault_proxy_can_fail_the_first_response(proxy: FaultProxy, file: Path) -> None:
    proxy.begin(Faults(first="throttled"))
    assert [get(proxy, first, first + 9)[0] for first in (0, 0, 10, 10, 0)] == [503, 206, 503, 206, 206]
    proxy.begin(Faults(first="dropped"))
    with pytest.raises(ConnectionResetError):
        get(proxy, 0, 9)
    assert get(proxy, 0, 9)[0] == 206


def test_fault_proxy_checks_the_etag(proxy: FaultProxy, file: Path) -> None:
    etag = get(proxy, 0, 9)[2]
    assert get(proxy, 0, 9, **{"If-Match": etag})[0] == 206
    assert get(proxy, 0, 9, **{"If-Match": '"another"'})[0] == 412


@pytest.mark.parametrize(
    ("fault", "status"), [("throttled", 503), ("failed", 500), ("wrong_etag", 206), ("flipped", 206)]
)
def test_fault_proxy_returns_error_responses(proxy: FaultProxy, file: Path, fault: str, status: int) -> None:
    right = get(proxy, 0, 999)
    proxy.begin(only(fault))
    wrong = get(proxy, 0, 999)
    assert wrong[0] == status
    assert wrong != right
    assert proxy.counted.faults == {fault: 1}


@pytest.mark.parametrize("place", [0, 70_000, -1, None])
def test_fault_proxy_flips_a_chosen_byte(proxy: FaultProxy, file: Path, place: int | None) -> None:
    proxy.begin(Faults(flipped=1.0, flip_at=place))
    _, data, _ = get(proxy, 0, 99_999)
    (other,) = (number for number in range(100_000) if data[number] != DATA[number])
    assert place is None or other == place % 100_000


@pytest.mark.parametrize("fault", ["reset", "cut"])
def test_fault_proxy_truncates_bodies(proxy: FaultProxy, file: Path, fault: str) -> None:
    proxy.begin(only(fault))
    with pytest.raises((ConnectionError, http.client.IncompleteRead)):
        get(proxy, 0, 99_999)


def test_fault_proxy_sends_a_short_body_with_matching_length(proxy: FaultProxy, file: Path) -> None:
    proxy.begin(Faults(truncated=1.0))
    assert get(proxy, 0, 999)[1] == DATA[:500]


def test_fault_proxy_randomness_is_independent_of_request_order(proxy: FaultProxy, file: Path) -> None:
    def made(order: list[int], threads: int) -> dict[int, int]:
        proxy.begin(Faults(throttled=0.5, seed=7))
        found: dict[int, int] = {}

        def work(part: list[int]) -> None:
            for first in part:
                found[first] = get(proxy, first, first + 9)[0]

        workers = [threading.Thread(target=work, args=(order[number::threads],)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return found

    places = list(range(0, 400, 10))
    once = made(places, 1)
    assert set(once.values()) == {206, 503}
    assert made(places[::-1], 4) == once
