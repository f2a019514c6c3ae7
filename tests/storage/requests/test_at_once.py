"""Tests of concurrent requests: results in order, first failure, timeout."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import StorageTimeoutError
from petastore.storage.requests.retries import at_once, in_time


@given(asked=st.lists(st.integers(-3, 100), max_size=300))
def test_concurrent_requests_return_in_order_until_a_failure(asked: list[int]) -> None:
    def task(number: int) -> int:
        if number < 0:
            raise ValueError(f"{number} is negative")
        return number * 2

    def in_turn(answers: Iterator[int]) -> tuple[list[int], str]:
        found: list[int] = []
        try:
            found.extend(answers)
        except ValueError as problem:
            return found, str(problem)
        return found, ""

    found, said = in_turn(at_once(task, asked))
    negative = next((place for place, number in enumerate(asked) if number < 0), None)
    assert found == [number * 2 for number in asked[:negative]]
    assert said == ("" if negative is None else f"{asked[negative]} is negative")


def test_concurrent_requests_end_when_one_times_out() -> None:
    answer = threading.Event()

    def task(number: int) -> int:
        return number if number != 3 else in_time(answer.wait, url="file:///data", what="wait", limit_s=0.05)

    answers = at_once(task, range(8))
    try:
        with pytest.raises(StorageTimeoutError, match=r"did not respond within .* to wait"):
            list(answers)
    finally:
        answer.set()
