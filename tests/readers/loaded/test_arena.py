"""Tests of the memory arena for loaded row groups: allocation, reuse, and unchanged batches."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import petastore
from petastore.codecs import NdarrayCodec
from petastore.decoding.buffers import Buffers
from petastore.plan.plan import Plan
from petastore.readers.loaded import arena as module
from petastore.readers.loaded.arena import Arena, Layout, Place
from petastore.schema.field import UnischemaField
from petastore.schema.unischema import Unischema
from tests.tier import examples

NUMBERS = Unischema("numbers", [UnischemaField("x", "f4"), UnischemaField("y", "f4"), UnischemaField("id", "i8")])


def shelf_of(rows: int, buffers: Buffers | None = None) -> Arena:
    return Arena(Layout.of(NUMBERS, rows=100), rows, buffers or Buffers())


def turns_of(place: Place) -> set[int]:
    assert place.places is not None
    return set(place.places[place.first : place.first + place.rows].tolist())


@given(st.lists(st.integers(0, 60) | st.none(), max_size=60))
def test_memory_arena_ranges_never_overlap_and_are_reused(steps: list[int | None]) -> None:
    arena = shelf_of(100)
    held: list[tuple[int, Place]] = []
    for number, rows in enumerate(steps):
        if rows is None:
            del held[:1]
            continue
        place = arena.place(rows)
        if place is None:
            taken = sum(those.rows for _, those in held)
            assert rows == 0 or len(held) > 0 or rows > 100, f"{rows} rows had no room beside {taken}"
            continue
        place.stack(1)[:] = number
        assert place.places is not None
        place.places[place.first : place.first + rows] = number
        held.append((number, place))
        del place
        assert all(set(those.stack(1)[0].tolist()) == {which} == turns_of(those) for which, those in held)
    held.clear()
    everything = arena.place(100)
    assert everything is not None
    assert everything.first == 0


def test_memory_arena_allocates_the_first_free_range_that_fits() -> None:
    arena = shelf_of(100)
    places = [arena.place(20) for _ in range(5)]
    assert [place.first for place in places if place] == [0, 20, 40, 60, 80]
    assert arena.place(1) is None
    places[1] = places[3] = None
    assert arena.place(21) is None
    small = arena.place(5)
    assert small is not None
    assert small.first == 20
    places[2] = None  # 25 to 80 is one free range now
    wide = arena.place(55)
    assert wide is not None
    assert wide.first == 25


def test_memory_arena_counts_only_the_bytes_in_use_so_far() -> None:
    buffers = Buffers()
    arena = shelf_of(1_000_000, buffers)
    assert buffers.given_bytes == 0
    first = arena.place(1000)
    assert buffers.given_bytes == 1000 * (4 + 4 + 8 + 4)
    del first
    again = arena.place(500)
    assert again is not None
    assert buffers.given_bytes == 1000 * 20
    del again, arena
    assert buffers.given_bytes == 0


@pytest.fixture(scope="module")
def mixed_columns() -> Iterator[str]:
    """Write short and long rows, columns with nulls, and text, in row groups of many sizes."""
    schema = Unischema(
        "mixed",
        [
            UnischemaField("id", "int64"),
            *(UnischemaField(f"x{number}", "float32") for number in range(6)),
            UnischemaField("age", "int32", (), None, True),
            UnischemaField("pose", "float32", (5, 30), NdarrayCodec()),
            UnischemaField("word", str),
        ],
    )
    with tempfile.TemporaryDirectory() as directory:
        url = str(Path(directory) / "mixed")
        rows = [
            {
                "id": row,
                **{f"x{number}": row + number for number in range(6)},
                "age": None if row % 7 == 0 else row,
                "pose": np.full((5, 30), row, "float32"),
                "word": f"w{row}",
            }
            for row in range(900)
        ]
        petastore.write_dataset(url, schema, rows, rows_per_row_group=70)
        yield url


def epochs(url: str, batch_size: int, **asked: Any) -> list[dict[str, Any]]:
    with petastore.make_batch_reader(url, shuffle_rows=True, num_epochs=2, **asked) as reader:
        return [{name: column.tolist() for name, column in batch.items()} for batch in reader.iter_batches(batch_size)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 1000),
    batch_size=st.sampled_from([1, 37, 100, 900]),
    lanes=st.sampled_from([None, 1, 3, 8]),
    room=st.sampled_from([0, 70, 300, 10_000]),
    filters=st.sampled_from([None, [("id", ">", 250)], [("age", "<", 300)]]),
    shard=st.sampled_from([{}, {"cur_shard": 1, "shard_count": 3}]),
)
def test_memory_arena_size_does_not_change_batches(
    mixed_columns: str,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    batch_size: int,
    lanes: int | None,
    room: int,
    filters: Any,
    shard: dict[str, int],
) -> None:
    asked = {"seed": seed, "interleave": lanes, "filters": filters, "workers_count": 2, **shard}
    with_enough = epochs(mixed_columns, batch_size, **asked)
    with monkeypatch.context() as patch:
        patch.setattr(Plan, "buffer_rows", room)
        assert epochs(mixed_columns, batch_size, **asked) == with_enough
    assert sum(len(batch["id"]) for batch in with_enough) > 0


def test_only_shuffled_reads_allocate_one_memory_arena_per_reader(
    mixed_columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Arena] = []

    class Noted(Arena):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(module, "Arena", Noted)
    epochs(mixed_columns, 100)
    assert [arena.rows for arena in made] == [900], "one arena serves all epochs of a reader"
    with petastore.make_batch_reader(mixed_columns, shuffle_row_groups=False) as reader:
        assert sum(batch.num_rows for batch in reader.iter_batches(100)) == 900
    assert len(made) == 1, "rows in the order of the file need none"
