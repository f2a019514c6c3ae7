"""Tests of `rows_of_step` and `steps_of_rows`: they equal `provenance=True` of readers, for each rank and row."""

from __future__ import annotations

import collections
import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import petastore
from petastore import NGram, col, make_mixed_reader, make_reader
from petastore.errors import InvalidArgumentError
from petastore.plan import Cursor
from petastore.plan.state import resume
from tests.tier import sized

Place = tuple[str, int, int]


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Write two datasets of several files with uneven row groups; `id` ascends."""
    folder = tmp_path_factory.mktemp("traced")
    for name, rows, per_group in (("a", 97, 10), ("b", 41, 7)):
        ids = np.arange(rows)
        petastore.write_dataset(
            folder / name, {"id": ids, "kind": ids % 5}, rows_per_row_group=per_group, rows_per_file=3 * per_group
        )
    return [str(folder / "a"), str(folder / "b")]


@st.composite
def options(draw: st.DrawFn) -> dict[str, Any]:
    """Draw reader options that all ranks share."""
    chosen: dict[str, Any] = {
        "seed": draw(st.integers(0, 9)),
        "shuffle_rows": draw(st.booleans()),
        "shuffle_row_groups": draw(st.booleans()),
        "last_batch": draw(st.sampled_from(["even", "drop", "pad", "wrap"])),
        "shuffle_buffer_bytes": draw(st.sampled_from([400, 2000, 2**20])),
        "filters": draw(st.sampled_from([None, col("kind") != 3, col("id") < 33])),
        "filter_cache": False,
    }
    if draw(st.booleans()):
        chosen["reshuffle_each_epoch"] = draw(st.booleans())
    return chosen


def given_places(batch: Any) -> list[Place]:
    return list(
        zip(
            batch["source_file"].tolist(),
            batch["source_row_group"].tolist(),
            batch["source_row"].tolist(),
            strict=True,
        )
    )


def check(readers: list[petastore.Reader], size: int, after: Cursor | None, most: int = 15) -> None:
    """Compare each step of all ranks with the plan of the first rank."""
    plan, seen, epochs = readers[0].plan, collections.Counter[tuple[int, int, int]](), set[int]()
    for rank, reader in enumerate(readers):
        for step, batch in enumerate(reader.iter_batches(size)):
            if step == most:
                break
            rows = plan.rows_of_step(step, batch_size=size, rank=rank, after=after)
            assert list(rows.places()) == given_places(batch), (step, rank)
            valid = batch["valid"].tolist() if "valid" in batch.columns else [True] * len(rows)
            assert rows.valid.tolist() == valid
            numbers = rows.numbers[rows.valid].tolist()
            seen.update((step, rank, number) for number in numbers)
            epochs.update({rows.epoch} if numbers else ())
    numbers = sorted({number for _, _, number in seen})
    last = max((step for step, _, _ in seen), default=0)
    if getattr(plan, "stop", None) == "cycle":  # epochs are looked up in parts, because this epoch is endless
        first = 0 if after is None else after.epoch
        epochs = {first + step // plan.steps_per_epoch(size) for step, _, _ in seen}
    found = collections.Counter[tuple[int, int, int]]()
    for epoch in sorted(epochs):
        steps = plan.steps_of_rows(numbers, batch_size=size, epoch=epoch, after=after)
        triples = zip(steps.steps.tolist(), steps.ranks.tolist(), steps.rows.tolist(), strict=True)
        found.update((step, rank, numbers[row]) for step, rank, row in triples if step <= last)
    assert found == seen


@settings(
    max_examples=sized(full=60, quick=12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data(), count=st.integers(1, 4), size=st.integers(1, 9))
def test_rows_of_step_equals_the_provenance_of_batches_read(
    urls: list[str], data: st.DataObject, count: int, size: int
) -> None:
    chosen = data.draw(options())
    is_mixed, is_resumed = data.draw(st.booleans()), data.draw(st.booleans())
    more: dict[str, Any] = {}
    if is_mixed:
        more = {
            "batching": data.draw(st.sampled_from(["mixed", "per_source"])),
            "stop": data.draw(st.sampled_from(["first_exhausted", "all_exhausted", "cycle"])),
        }
    event(f"mixed {is_mixed}, resumed {is_resumed}, last batch {chosen['last_batch']}")
    epochs = None if more.get("stop") == "cycle" else 2

    def reader_of(rank: int, ranks: int) -> petastore.Reader:
        shared = {**chosen, "num_epochs": epochs, "cur_shard": rank, "shard_count": ranks, "provenance": True}
        if is_mixed:
            return make_mixed_reader(urls, [2, 1], workers_count=1, **shared, **more)
        return make_reader(urls[0], workers_count=1, **shared)

    with contextlib.ExitStack() as stack:
        readers = [stack.enter_context(reader_of(rank, count)) for rank in range(count)]
        if not is_resumed:
            check(readers, size, None)
            return
        begun = stack.enter_context(reader_of(0, data.draw(st.integers(1, 3))))
        batches = begun.iter_batches(data.draw(st.integers(1, 5)))
        for _ in zip(range(data.draw(st.integers(1, 12))), batches, strict=False):
            pass
        state = json.loads(json.dumps(begun.state_dict()))
        _, after = resume(readers[0].plan, state)
        for reader in readers:
            reader.load_state_dict(state)
        check(readers, size, after)


@pytest.mark.parametrize("shuffle_rows", [False, True])
def test_rows_of_step_equals_the_first_rows_of_windows_read(urls: list[str], shuffle_rows: bool) -> None:
    ngram = NGram({0: ["id"], 1: ["id"], 2: ["id"]}, 1, "id")
    with make_reader(urls[0], ngram, seed=2, shuffle_rows=shuffle_rows, num_epochs=2) as reader:
        for step, _ in enumerate(reader.iter_batches(8)):
            rows = reader.plan.rows_of_step(step, batch_size=8)
            assert (rows.window_length, rows.places()) == (3, reader.position().rows)
            found = reader.plan.steps_of_rows(rows.places(), batch_size=8, epoch=rows.epoch)
            assert set(found.steps.tolist()) == {step}
    assert step > 20


def test_exclude_rows_accepts_the_rows_of_a_step(urls: list[str]) -> None:
    with make_reader(urls[0], seed=2, shuffle_rows=True) as reader:
        places = reader.plan.rows_of_step(3, batch_size=8).places()
    with make_reader(urls[0], seed=2, shuffle_rows=True, exclude_rows=places, provenance=True) as reader:
        assert reader.num_rows == 97 - 8
        for batch in reader.iter_batches(8):
            assert not set(given_places(batch)) & set(places)


@pytest.mark.parametrize("size", [6, 32, 60])
def test_steps_of_rows_lists_each_read_of_a_row_that_wrap_repeats(tmp_path: Path, size: int) -> None:
    petastore.write_dataset(tmp_path, {"id": np.arange(23)})
    with make_reader(tmp_path, last_batch="wrap") as reader:
        ids = np.concatenate([batch["id"] for batch in reader.iter_batches(size)])
        found = reader.plan.steps_of_rows(np.arange(23), batch_size=size)
    assert np.bincount(found.rows, minlength=23).tolist() == np.bincount(ids, minlength=23).tolist()


def test_rows_of_a_mixture_are_found_by_the_url_of_their_dataset(tmp_path: Path) -> None:
    urls = datasets_with_equal_file_names(tmp_path)
    with make_mixed_reader(urls, [1, 1], provenance=True) as reader:
        batch = next(reader.iter_batches(5))
        places, traced = reader.position().rows, reader.plan.rows_of_step(0, batch_size=5).places()
        assert places == traced == tuple(given_places(batch))
        assert reader.plan.steps_of_rows(places, batch_size=5).steps.tolist() == [0] * 5
        assert len(reader.plan.steps_of_rows([("part.parquet", 0, 0)], batch_size=5)) == 2
    excluded = set(batch["id"].tolist())
    with make_mixed_reader(urls, [1, 1], stop="all_exhausted", exclude_rows=traced) as reader:
        ids = {row.id for row in reader}
    assert ids == {*range(10), *range(100, 110)} - excluded


def test_exclude_rows_of_a_mixture_needs_the_url_only_if_it_is_ambiguous(tmp_path: Path) -> None:
    urls = datasets_with_equal_file_names(tmp_path)
    asked: dict[str, Any] = {"stop": "all_exhausted", "exclude_rows": [("part.parquet", 0, 0)]}
    with pytest.raises(InvalidArgumentError, match=r"must name rows of one dataset, got .*, which 2 datasets have"):
        make_mixed_reader(urls, [1, 1], **asked)
    # Both sources are one dataset, so the row is excluded from both.
    with make_mixed_reader([urls[0], urls[0]], [1, 1], **asked) as reader:
        assert {row.id for row in reader} == set(range(1, 10))
    (tmp_path / "1" / "part.parquet").rename(tmp_path / "1" / "another.parquet")
    with make_mixed_reader(urls, [1, 1], **asked) as reader:
        assert {row.id for row in reader} == {*range(1, 10), *range(100, 110)}
    with make_mixed_reader([urls[0], {"dataset_url": urls[1], "exclude_rows": None}], [1, 1], **asked) as reader:
        assert {row.id for row in reader} == {*range(1, 10), *range(100, 110)}
    with pytest.raises(InvalidArgumentError, match=r"\('part.parquet', 0, 10\), which does not exist in any source"):
        make_mixed_reader(urls, [1, 1], exclude_rows=[("part.parquet", 0, 10)])


@pytest.mark.parametrize("rows", [5, [5, (1, 2)], "part.parquet", [[]]])
def test_steps_of_rows_rejects_values_that_are_not_lists_of_rows(urls: list[str], rows: Any) -> None:
    with make_reader(urls[0]) as reader, pytest.raises(InvalidArgumentError, match=r"^rows must "):
        reader.plan.steps_of_rows(rows, batch_size=3)


def datasets_with_equal_file_names(folder: Path) -> list[str]:
    for number in (0, 1):
        (folder / str(number)).mkdir()
        pq.write_table(pa.table({"id": np.arange(10) + 100 * number}), folder / str(number) / "part.parquet")
    return [str(folder / "0"), str(folder / "1")]


def test_exclude_rows_accepts_rows_as_a_mixture_names_them(urls: list[str]) -> None:
    with make_mixed_reader(urls, [1, 1], provenance=True) as mixed:
        batch = next(mixed.iter_batches(8))
        url = petastore.open_dataset(urls[0]).url
        places = [place for place in mixed.position().rows if place[0].startswith(f"{url}/")]
    read = batch["id"][np.isin(batch["source_file"], [file for file, _, _ in places])]
    assert 0 < len(places) == len(read) < 8
    with make_reader(urls[0], exclude_rows=places) as reader:
        left = np.concatenate([batch["id"] for batch in reader.iter_batches(8)])
    assert sorted(left) == sorted(set(range(97)) - set(read.tolist()))
