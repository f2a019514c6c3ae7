"""Tests of the number of remaining steps from a position to the end of the pass."""

from __future__ import annotations

from typing import Any

import pytest

import petastore
from petastore.plan.cursor import Cursor
from petastore.plan.request import LastBatchWord


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    for name, rows in (("a", 23), ("b", 40)):
        petastore.write_dataset(str(folder / name), schema, [{"id": i} for i in range(rows)], rows_per_row_group=7)
    return [str(folder / name) for name in ("a", "b")]


def opened(urls: list[str], batching: str | None, **asked: Any) -> Any:
    if batching is None:
        return petastore.make_reader(urls[0], seed=1, shuffle_rows=True, **asked)
    return petastore.make_mixed_reader(urls, [1, 2], seed=1, shuffle_rows=True, batching=batching, **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize("batching", [None, "mixed", "per_source"])
@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("then", [3, 5])
def test_steps_left_equals_the_remaining_steps(
    urls: list[str], batching: str | None, last_batch: LastBatchWord, then: int
) -> None:
    asked: Any = {"num_epochs": 2, "last_batch": last_batch, "cur_shard": 1, "shard_count": 2}
    with opened(urls, batching, **asked) as reader:
        batches = reader.iter_batches(3)
        states = [reader.state_dict(), *(reader.state_dict() for _ in batches)]
    for state in states[::3]:
        with opened(urls, batching, **asked) as reader:
            reader.load_state_dict(state)
            assert reader.plan.steps_left(then, reader.cursor) == len(list(reader.iter_batches(then)))


def test_steps_left_is_zero_at_the_end_and_none_when_endless(urls: list[str]) -> None:
    with opened(urls, None) as reader:
        assert reader.plan.steps_left(10, Cursor(1, 0, 0)) == 0
    for batching in (None, "mixed"):
        with opened(urls, batching, num_epochs=None) as reader:
            assert reader.plan.steps_left(10, Cursor()) is None
