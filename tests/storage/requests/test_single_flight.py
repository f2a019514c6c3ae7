"""Tests of SingleFlight: one call for all threads, also after Ctrl-C at any line."""

from __future__ import annotations

import concurrent.futures
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from petastore.storage.requests.retries import SingleFlight
from tests.pace import LONG


def interrupted_at(line: int, flights: SingleFlight[str, int]) -> bool:
    """Request a result, and raise KeyboardInterrupt at a line of `result`; return whether it has so many lines."""
    lines = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if frame.f_code is not SingleFlight.result.__code__:
            return None
        if event == "line":
            lines += 1
            if lines == line:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        flights.result("key", lambda: 1)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_threads_that_request_a_key_at_the_same_time_share_one_call() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    calls: list[int] = []
    answers: list[int] = []
    second = threading.Thread(target=lambda: answers.append(flights.result("key", call)))

    def call() -> int:
        calls.append(7)
        if len(calls) == 1:
            second.start()
            until = time.monotonic() + LONG
            while sys._current_frames()[second.ident or 0].f_code.co_name != "wait":
                assert time.monotonic() < until
        return 7

    assert flights.result("key", call) == 7
    second.join(LONG)
    assert (calls, answers) == ([7], [7])


def test_call_after_an_error_is_made_again() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    with pytest.raises(ZeroDivisionError):
        flights.result("key", lambda: 1 // 0)
    assert flights.result("key", lambda: 2) == 2


def test_call_after_ctrl_c_at_any_line_is_made() -> None:
    line = 1
    while interrupted_at(line, flights := SingleFlight[str, int]()):
        answer: concurrent.futures.Future[int] = concurrent.futures.Future()
        asking = threading.Thread(
            target=lambda flights=flights, answer=answer: answer.set_result(flights.result("key", lambda: 2)),
            daemon=True,
        )
        asking.start()
        assert answer.result(LONG) == 2, f"line {line}"
        asking.join()
        line += 1
    assert line > 5
