"""One pass over a reader at a time, whoever asks from whatever thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import petastore
from petastore.adapters.passes import Passes
from petastore.errors import ReaderClosedError, RequestError


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[petastore.Reader]:
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "numbers", schema, [{"id": i} for i in range(100)], rows_per_row_group=7)
    with petastore.make_reader(tmp_path / "numbers", shuffle_row_groups=False) as reader:
        yield reader


def ids(batches: Iterator[petastore.Batch]) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


def test_the_first_pass_goes_on_from_where_the_reader_stands_and_further_ones_begin_again(
    reader: petastore.Reader,
) -> None:
    assert [row.id for _, row in zip(range(10), reader, strict=False)] == list(range(10))
    passes = Passes(reader)
    assert ids(passes.start(8)) == list(range(10, 100))
    assert ids(passes.start(8)) == list(range(100))


def test_a_reader_that_was_read_to_its_end_begins_again(reader: petastore.Reader) -> None:
    assert len(list(reader)) == 100
    assert ids(Passes(reader).start(8)) == list(range(100))


def test_a_newer_pass_takes_the_reader_over_from_an_older_one(reader: petastore.Reader) -> None:
    passes = Passes(reader)
    older = passes.start(10)
    assert next(older)["id"].tolist() == list(range(10))
    assert ids(passes.start(8)) == list(range(100))
    with pytest.raises(RequestError, match=r"the loader was iterated again.*one place at a time"):
        next(older)


def test_a_pass_that_never_began_costs_nothing(reader: petastore.Reader) -> None:
    passes = Passes(reader)
    passes.start(8)
    older = passes.start(8)
    assert next(older)["id"].tolist() == list(range(8))
    passes.start(8)
    assert ids(older) == list(range(8, 100))


def test_a_pass_may_be_continued_by_another_thread(reader: petastore.Reader) -> None:
    batches = Passes(reader).start(8)
    first = next(batches)["id"].tolist()
    rest: list[int] = []
    thread = threading.Thread(target=lambda: rest.extend(ids(batches)))
    thread.start()
    thread.join()
    assert first + rest == list(range(100))


def test_a_stopped_reader_says_so(reader: petastore.Reader) -> None:
    reader.stop()
    with pytest.raises(ReaderClosedError):
        next(Passes(reader).start(8))


def begun(batch: petastore.Batch) -> Callable[[], list[int]]:
    return lambda: batch["id"].tolist()


@pytest.mark.parametrize("received", [1, 3, 12, 13])
def test_ahead_of_training_the_state_is_that_of_the_batch_which_training_has(
    reader: petastore.Reader, received: int
) -> None:
    passes = Passes(reader)
    ahead = passes.start_ahead(8, begun)
    taken = [next(ahead) for _ in range(received)]
    assert [number for batch in taken for number in batch] == list(range(min(8 * received, 100)))
    assert passes.state_dict()["position"] == min(8 * received, 100) % 100
    assert (reader.state_dict() == passes.state_dict()) is (received == 13)
    reader.load_state_dict(passes.state_dict())
    assert ids(passes.start(8)) == list(range(8 * received, 100))


def test_without_a_batch_on_its_way_the_state_is_the_readers(reader: petastore.Reader) -> None:
    passes = Passes(reader)
    assert passes.state_dict() == reader.state_dict()
    next(passes.start(8))
    assert passes.state_dict() == reader.state_dict()
    assert passes.state_dict()["position"] == 8


def test_the_pass_after_one_that_was_left_is_not_counted_from_what_was_on_its_way(reader: petastore.Reader) -> None:
    passes = Passes(reader)
    ahead = passes.start_ahead(50, begun)
    next(ahead)
    assert ids(passes.start(50)) == list(range(100))
    assert reader.cursor.first_epoch == 1
    with pytest.raises(RequestError, match="the loader was iterated again"):
        next(ahead)
