"""Tests of finding bad rows: ranges that fail are bisected, whether the error names the row or not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from petastore.errors import DecodeError, TransformError
from petastore.readers.bad_rows.row_check import failing_rows


@given(flags=st.lists(st.booleans(), min_size=1, max_size=40), names=st.sampled_from(["first", "last", "none"]))
def test_failing_rows_are_found_by_bisection_in_few_calls(flags: list[bool], names: str) -> None:
    calls = []

    def attempt(first: int, stop: int) -> None:
        calls.append((first, stop))
        failing = [row for row in range(first, stop) if flags[row]]
        if failing and names == "none":
            raise TransformError("no")
        if failing:
            raise DecodeError("no", row=failing[0 if names == "first" else -1] - first)

    assert sorted(failing_rows(attempt, len(flags))) == [row for row, fails in enumerate(flags) if fails]
    assert calls[0] == (0, len(flags))
    assert len(calls) <= 1 + (2 * sum(flags) if names != "none" else 14 * sum(flags))
