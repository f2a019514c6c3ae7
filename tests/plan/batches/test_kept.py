"""What a refused budget advises fits the case, and nothing else is spoken of."""

from __future__ import annotations

import pytest

from petastore.plan.batches.budget import Budget
from petastore.plan.batches.kept import Kept

MB = 10**6


def advice(kept: Kept, *, at_hand: int = 0, batches: int = 0, work: int = 0, limit: int = 50, workers: int = 4) -> str:
    needed = Budget(64, 1, at_hand * MB, batches * MB, work * MB)
    return kept.advice(needed, limit=limit * MB, workers=workers)


BY_LESS = "ask for less shuffle_buffer_bytes"
BY_WRITING = "write row groups of fewer rows"
SHUFFLED = Kept(largest_group_bytes=4 * MB, shuffles_rows=True, lanes=48)
IN_ORDER = Kept(largest_group_bytes=90 * MB)


@pytest.mark.parametrize(
    ("found", "first", "never"),
    [
        (advice(IN_ORDER, at_hand=90, batches=1), BY_WRITING, ["shuffle_buffer_bytes", "batches", "lanes"]),
        (advice(SHUFFLED, at_hand=90, batches=1), BY_LESS, ["row groups of fewer", "lanes"]),
        (advice(Kept(90 * MB, shuffles_rows=True), at_hand=99), BY_WRITING, ["lanes", "batches"]),
        (advice(Kept(4 * MB, lanes=16), at_hand=64), "ask for fewer lanes than 16", ["shuffle_buffer_bytes"]),
        (advice(Kept(4 * MB, sources=9), at_hand=64), "mix fewer datasets than 9", ["shuffle_buffer_bytes", "lanes"]),
        (advice(Kept(40 * MB, is_of_windows=True), at_hand=64), BY_WRITING, ["shuffle_buffer_bytes", "lanes"]),
        (advice(IN_ORDER, batches=90, at_hand=1), "ask for smaller batches", ["shuffle_buffer_bytes", "windows"]),
        (advice(Kept(MB, is_of_windows=True), batches=90), "ask for smaller batches; ask for shorter", ["lanes"]),
        (
            advice(SHUFFLED, work=90, batches=1),
            "ask for fewer workers",
            ["shuffle_buffer_bytes", "row groups", "batches"],
        ),
        (advice(SHUFFLED, work=90, workers=1), "read fewer columns", ["workers", "shuffle_buffer_bytes"]),
    ],
)  # fmt: skip
def test_what_takes_most_is_spoken_of_first_and_what_takes_nothing_is_not(
    found: str, first: str, never: list[str]
) -> None:
    assert found.startswith(first)
    assert not [words for words in never if words in found]


def test_each_part_that_matters_is_spoken_of() -> None:
    found = advice(SHUFFLED, at_hand=60, batches=40, work=30)
    places = [
        found.index(words) for words in ("shuffle_buffer_bytes", "smaller batches", "fewer workers", "fewer columns")
    ]
    assert places == sorted(places)


def test_shuffle_memory_is_spoken_of_where_rows_are_shuffled_and_nowhere_else() -> None:
    for shuffles in (False, True):
        for at_hand in (1, 60, 10**4):
            kept = Kept(30 * MB, shuffles_rows=shuffles, lanes=7, sources=3, is_of_windows=True)
            assert ("shuffle_buffer_bytes" in advice(kept, at_hand=at_hand)) == shuffles
