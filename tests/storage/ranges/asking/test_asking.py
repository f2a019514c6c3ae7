"""Calls of a storage: all answers in order, or the first problem; again while that may help; by another way."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyarrow import fs

from petastore.errors import ReaderClosedError, StorageError
from petastore.storage.files.location import open_location
from petastore.storage.ranges.arrow_client import ArrowClient
from petastore.storage.ranges.asking.asking import Asking
from petastore.storage.ranges.asking.tally import Tally
from petastore.storage.requests.client import Client, UnsuitedError

NUMBERS = bytes(range(100))


@pytest.fixture
def tally() -> Tally:
    return Tally()


@pytest.fixture
def asking(tmp_path: Path, tally: Tally) -> Iterator[Asking]:
    (tmp_path / "numbers").write_bytes(NUMBERS)
    local = [ArrowClient(fs.LocalFileSystem()) for _ in range(2)]
    asking = Asking(open_location(tmp_path), local[0], otherwise=local[1], most_under_way=3, tally=tally, pace=None)
    yield asking
    asking.close()


def byte(path: Path, at: int, client: Client) -> int:
    return bytes(client.get(str(path / "numbers"), at, 1, None).data)[0]


def test_all_answers_come_in_the_order_of_the_calls(asking: Asking, tally: Tally, tmp_path: Path) -> None:
    calls = [functools.partial(byte, tmp_path, at) for at in range(20)]
    assert asking.all_of("numbers", calls, [0.01] * 20) == list(range(20))
    assert (tally.counts.requests, tally.counts.again) == (20, 0)


def test_a_call_is_made_again_where_that_may_help(asking: Asking, tally: Tally) -> None:
    problems = [TimeoutError("slow"), ConnectionResetError("reset")]

    def call(_: Client) -> int:
        if problems:
            raise problems.pop()
        return 7

    assert asking.all_of("numbers", [call], [0.01]) == [7]
    assert (tally.counts.requests, tally.counts.again) == (3, 2)


def test_the_first_that_fails_for_good_ends_the_others(asking: Asking, tally: Tally) -> None:
    over = threading.Event()

    def waits(_: Client) -> int:
        over.wait(60)
        return 0

    def fails(_: Client) -> int:
        raise PermissionError("not yours")

    calls: list[Callable[[Client], int]] = [waits, fails, waits, *[waits] * 50]
    with pytest.raises(StorageError, match=r"numbers.*not yours"):
        asking.all_of("numbers", calls, [0.01] * len(calls))
    over.set()
    assert tally.counts.requests <= 4  # nobody begins what nobody waits for


def test_who_cannot_ask_is_asked_no_more(asking: Asking) -> None:
    asked: list[Client] = []

    def call(client: Client) -> int:
        asked.append(client)
        if client is asked[0]:
            raise UnsuitedError("not by this way")
        return len(asked)

    assert asking.all_of("numbers", [call], [0.01]) == [2]
    assert asking.all_of("numbers", [call], [0.01]) == [3]
    assert asked[1] is asked[2]


def test_whoever_asks_a_closed_one_is_told(asking: Asking) -> None:
    asking.close()
    with pytest.raises(ReaderClosedError):
        asking.all_of("numbers", [lambda _: 1], [0.01])
