"""Tests of the `Pass` of a reader: its cursor after rows and batches, how it ends and stops, and shared iteration."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from petastore.dataset import Dataset
from petastore.errors import ReaderClosedError
from petastore.plan.cursor import Cursor
from petastore.readers.read_pass import Pass
from petastore.work.pools import Workers
from tests.pace import LONG
from tests.readers.small import ROWS, execution_of, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("read_pass")) / "data")


@pytest.fixture(params=["dummy", "thread"])
def run(request: pytest.FixtureRequest, dataset: Dataset) -> Iterator[Pass]:
    execution = execution_of(dataset, workers=Workers(request.param, 2), epochs=2)
    begun = Pass(execution, Cursor())
    yield begun
    begun.close()
    begun.end()
    execution.close()
    execution.join()


def ids(run: Pass, size: int, most: int | None = None) -> list[list[int]]:
    batches = (batch["id"].tolist() for handout in run.batches(size) for batch in handout)
    return list(itertools.islice(batches, most))


def test_iteration_yields_the_batches_of_all_epochs_and_ends(run: Pass) -> None:
    assert not run.is_over
    assert ids(run, 10) == 2 * [list(range(10)), list(range(10, 20)), list(range(20, ROWS))]
    assert (run.is_over, run.cursor) == (True, Cursor(2, 0))
    assert ids(run, 10) == []
    assert not run.is_running


def test_cursor_of_an_iteration_follows_the_consumed_rows(run: Pass) -> None:
    batches = run.batches(4)
    handouts = (batch for handout in batches for batch in handout)
    taken = [next(handouts)["id"].tolist() for _ in range(3)]
    assert (taken[-1], run.cursor) == ([8, 9, 10, 11], Cursor(0, 12))
    batches.close()
    assert run.cursor == Cursor(0, 12)
    assert ids(run, 5, most=1) == [[12, 13, 14, 15, 16]]


def test_iteration_may_alternate_between_rows_and_batches(run: Pass) -> None:
    items = run.items()
    assert [next(items).id for _ in range(3)] == [0, 1, 2]
    assert run.cursor == Cursor(0, 3)
    assert ids(run, 6, most=1) == [[3, 4, 5, 6, 7, 8]]


def test_stopped_iteration_raises_reader_closed_error(run: Pass) -> None:
    batches = run.batches(4)
    next(iter(next(batches)))
    run.close()
    with pytest.raises(ReaderClosedError):
        list(batches)
    with pytest.raises(ReaderClosedError, match=r"this reader was stopped\. Open another one"):
        next(run.batches(4))


def test_cursor_of_an_iteration_is_known_after_its_pipeline_is_released(run: Pass) -> None:
    batches = run.batches(4)
    handout = next(batches)
    next(iter(handout))
    run.let_go()
    assert run.cursor == Cursor(0, 4)
    batches.close()


def test_iteration_counts_spans_under_petastorm_diagnostics_names(run: Pass) -> None:
    assert set(run.spans.values()) == {0}
    batches = run.batches(4)
    next(batches)
    counts = run.spans
    assert counts["items_consumed"] == 1
    assert counts["items_produced"] == counts["items_consumed"] + counts["output_queue_size"]
    assert 0 < run.meter.waited_s < LONG
    batches.close()


def test_iteration_starts_from_the_given_cursor(dataset: Dataset) -> None:
    execution = execution_of(dataset, epochs=2)
    assert ids(Pass(execution, Cursor(1, 20)), 10) == [[20, 21, 22]]
    assert ids(Pass(execution, Cursor(2, 0)), 10) == []
    execution.join()
