"""Tests of damaged remote data: it is fetched once more and evicted from the cache, and local damage raises."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from petastore.storage.requests.retries import read_right


def giving(*answers: str) -> Callable[[], int]:
    left = iter(answers)
    return lambda: int(next(left))


def test_valid_remote_data_is_fetched_once() -> None:
    assert read_right(giving("1"), giving("2"), refused=ValueError) == 1


def test_damaged_data_is_fetched_again_and_evicted() -> None:
    forgotten: list[None] = []
    forget = lambda: forgotten.append(None)  # noqa: E731
    assert read_right(giving("x"), giving("2"), refused=ValueError, forget=forget) == 2
    assert len(forgotten) == 1
    with pytest.raises(ValueError, match="again"):
        read_right(giving("x"), giving("again", "3"), refused=ValueError, forget=forget)
    assert len(forgotten) == 3


def test_damaged_local_data_raises_at_once() -> None:
    with pytest.raises(ValueError, match="first"):
        read_right(giving("first", "2"), None, refused=ValueError)


def test_errors_other_than_damage_are_raised_unchanged() -> None:
    with pytest.raises(StopIteration):
        read_right(giving(), giving("2"), refused=ValueError)
