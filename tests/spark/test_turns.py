"""Tests of materialize blocks with different session settings: they run one after another, and restore settings.

Real sessions do the same in `test_session.py`; here a dict replaces the configuration, so that tests can force an order
of events.
"""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import threading
from collections.abc import Iterator

import pytest

from petastore.errors import InvalidArgumentError
from petastore.spark.settings import settings_held

KEY = "parquet.block.size"
LONG_S = 300
"""A time limit only to end hangs: waits that succeed take no time."""


class Configuration:
    """A stand-in for `spark.conf`."""

    def __init__(self, **values: str) -> None:
        self.values = {key.replace("_", "."): value for key, value in values.items()}
        self.refused: set[str] = set()

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        return dict(self.values)

    def get(self, key: str, default: str | None = None) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str) -> None:
        if key in self.refused:
            raise KeyError(key)
        self.values[key] = value

    def unset(self, key: str) -> None:
        self.values.pop(key, None)


class Session:
    def __init__(self, **values: str) -> None:
        self.conf = Configuration(**values)


@pytest.fixture
def pool() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        yield pool


def hold(session: Session, value: str, inside: threading.Event, leave: threading.Event) -> str | None:
    with settings_held(session, {KEY: value}, reason=value):
        inside.set()
        assert leave.wait(LONG_S)
        return session.conf.get(KEY)


class Order(logging.Handler):
    """The order of events: a waiting block logs a warning, and an entering block adds an event."""

    def __init__(self) -> None:
        super().__init__()
        self.happened: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.happened.put(record.getMessage())

    def enter(self, session: Session, value: str) -> str | None:
        """Enter a block that logs immediately and often while it waits."""
        with settings_held(session, {KEY: value}, reason=value, patience_s=0.01):
            self.happened.put("entered")
            return session.conf.get(KEY)

    def next(self) -> str:
        return self.happened.get(timeout=LONG_S)

    def until_entered(self) -> None:
        while self.next() != "entered":
            pass


@pytest.fixture
def order() -> Iterator[Order]:
    handler, logger = Order(), logging.getLogger("petastore.spark.settings")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_spark_session_settings_hold_only_inside_the_block() -> None:
    session = Session(other="kept", parquet_block_size="7")
    with settings_held(session, {KEY: "1", "new": "2"}, reason="a"):
        assert session.conf.get(KEY) == "1"
        assert session.conf.get("new") == "2"
    assert session.conf.values == {"other": "kept", KEY: "7"}


def test_spark_session_settings_are_restored_after_an_exception() -> None:
    session = Session(parquet_block_size="7")
    with pytest.raises(KeyError, match="mine"), settings_held(session, {KEY: "1"}, reason="a"):
        raise KeyError("mine")
    assert session.conf.values == {KEY: "7"}


def test_spark_session_settings_are_restored_when_spark_rejects_one() -> None:
    session = Session(parquet_block_size="7")
    session.conf.refused.add("new")
    with pytest.raises(KeyError, match="new"), settings_held(session, {KEY: "1", "new": "2"}, reason="a"):
        pytest.fail("the block must not run")
    assert session.conf.values == {KEY: "7"}


def test_nested_session_settings_are_restored() -> None:
    session = Session()
    with settings_held(session, {KEY: "1"}, reason="outer"):
        with settings_held(session, {KEY: "2"}, reason="inner"):
            assert session.conf.get(KEY) == "2"
        with settings_held(session, {KEY: "1"}, reason="equal"):
            assert session.conf.get(KEY) == "1"
        assert session.conf.get(KEY) == "1"
    assert session.conf.values == {}


def test_blocks_with_different_spark_session_settings_wait_for_each_other(
    pool: concurrent.futures.ThreadPoolExecutor, order: Order
) -> None:
    session, inside, leave = Session(), threading.Event(), threading.Event()
    first = pool.submit(hold, session, "1", inside, leave)
    assert inside.wait(LONG_S)
    waiting = pool.submit(order.enter, session, "2")
    for _ in range(2):
        said = order.next()
        assert "2 has waited" in said
        assert "for 1, which uses the Spark session" in said
    assert session.conf.get(KEY) == "1"
    leave.set()
    order.until_entered()
    assert (first.result(LONG_S), waiting.result(LONG_S)) == ("1", "2")
    assert session.conf.values == {}


def test_blocks_with_equal_spark_session_settings_run_concurrently(pool: concurrent.futures.ThreadPoolExecutor) -> None:
    session, leave = Session(), threading.Event()
    inside = [threading.Event() for _ in range(3)]
    held = [pool.submit(hold, session, "1", event, leave) for event in inside]
    assert all(event.wait(LONG_S) for event in inside)
    leave.set()
    assert [one.result(LONG_S) for one in held] == ["1"] * 3
    assert session.conf.values == {}


def test_settings_of_two_spark_sessions_do_not_wait(pool: concurrent.futures.ThreadPoolExecutor) -> None:
    leave = threading.Event()
    inside = [threading.Event(), threading.Event()]
    held = [pool.submit(hold, Session(), str(number), event, leave) for number, event in enumerate(inside)]
    assert all(event.wait(LONG_S) for event in inside)
    leave.set()
    assert [one.result(LONG_S) for one in held] == ["0", "1"]


def test_nested_session_settings_wait_for_other_threads(
    pool: concurrent.futures.ThreadPoolExecutor, order: Order
) -> None:
    session, leave, shared = Session(), threading.Event(), threading.Event()

    def nest() -> str | None:
        with settings_held(session, {KEY: "1"}, reason="outer"):
            return order.enter(session, "2")

    other = pool.submit(hold, session, "1", shared, leave)
    assert shared.wait(LONG_S)
    nested = pool.submit(nest)
    for _ in range(2):
        assert "2 has waited" in order.next()
    leave.set()
    order.until_entered()
    assert (other.result(LONG_S), nested.result(LONG_S)) == ("1", "2")
    assert session.conf.values == {}


def test_deadlock_of_nested_spark_session_settings_raises(pool: concurrent.futures.ThreadPoolExecutor) -> None:
    session, both = Session(), threading.Barrier(2, timeout=LONG_S)

    def nest(value: str) -> str | None:
        with settings_held(session, {KEY: "1"}, reason="outer"):
            both.wait()
            with settings_held(session, {KEY: value}, reason=value):
                return session.conf.get(KEY)

    nested = {value: pool.submit(nest, value) for value in ("2", "3")}
    problems = {value: one.exception(LONG_S) for value, one in nested.items()}
    refused = [value for value, problem in problems.items() if problem is not None]
    assert len(refused) == 1
    assert isinstance(problems[refused[0]], InvalidArgumentError)
    (done,) = set(nested) - set(refused)
    assert nested[done].result(LONG_S) == done
    assert session.conf.values == {}
