"""Tests of SingleFlight: one call for all threads, also after Ctrl-C at any line."""

from __future__ import annotations

import concurrent.futures
import os
import signal
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


def test_other_thread_may_request_the_key_between_any_two_instructions() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    answers: list[int] = []
    threads: list[threading.Thread] = []
    instructions = at = 0

    def other_thread() -> None:
        threads.append(threading.Thread(target=lambda: answers.append(flights.result("key", lambda: 2))))
        threads[-1].start()
        until = time.monotonic() + LONG
        while threads[-1].is_alive() and sys._current_frames()[threads[-1].ident or 0].f_code.co_name != "wait":
            assert time.monotonic() < until

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal instructions
        if frame.f_code is not SingleFlight.result.__code__:
            return None
        frame.f_trace_opcodes = True
        instructions += event == "opcode"
        if event == "opcode" and instructions == at:
            other_thread()
        return trace

    before = sys.gettrace()
    while instructions >= at:
        instructions, at = 0, at + 1
        sys.settrace(trace)
        try:
            assert flights.result("key", lambda: 2) == 2, f"instruction {at}"
        finally:
            sys.settrace(before)
        while threads:
            threads.pop().join(LONG)
    assert at > 20
    assert answers == [2] * (at - 1)


def test_forked_child_makes_a_call_that_another_thread_is_making() -> None:
    flights: SingleFlight[str, int] = SingleFlight()
    begun, forked = threading.Event(), threading.Event()

    def call() -> int:
        begun.set()
        forked.wait(LONG)
        return 1

    thread = threading.Thread(target=flights.result, args=("key", call))
    thread.start()
    begun.wait(LONG)
    child = os.fork()
    if child == 0:
        signal.alarm(int(LONG))
        os._exit(flights.result("key", lambda: 7))
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
