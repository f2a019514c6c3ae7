"""Tests of `EpochTracker`: one pass over a reader at a time, set_epoch, states, prefetched batches, threads."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.epoch_tracker import EpochTracker
from petastore.errors import InvalidArgumentError, ReaderClosedError


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[petastore.Reader]:
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "numbers", schema, [{"id": i} for i in range(100)], rows_per_row_group=7)
    with petastore.make_reader(tmp_path / "numbers", shuffle_row_groups=False) as reader:
        yield reader


class Shuffled:
    """Dataset of a hundred rows, which is read in a different order in each epoch."""

    def __init__(self, url: Path) -> None:
        schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
        petastore.write_dataset(url, schema, [{"id": i} for i in range(100)], rows_per_row_group=7)
        self.reader = functools.partial(petastore.make_reader, url, shuffle_rows=True, seed=7)

    def epoch(self, number: int) -> list[int]:
        with self.reader(num_epochs=number + 1) as reader:
            return ids(reader.iter_batches(8))[-100:]


@pytest.fixture
def shuffled(tmp_path: Path) -> Shuffled:
    return Shuffled(tmp_path / "shuffled")


def ids(batches: Iterator[petastore.Batch]) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


def test_first_loop_resumes_and_later_loops_start_again(
    reader: petastore.Reader,
) -> None:
    assert [row.id for _, row in zip(range(10), reader, strict=False)] == list(range(10))
    tracker = EpochTracker(reader)
    assert ids(tracker.start(8)) == list(range(10, 100))
    assert ids(tracker.start(8)) == list(range(100))


def test_loop_starts_again_when_the_reader_is_exhausted(reader: petastore.Reader) -> None:
    assert len(list(reader)) == 100
    assert ids(EpochTracker(reader).start(8)) == list(range(100))


def test_newer_loop_ends_an_older_loop_of_the_same_reader(reader: petastore.Reader) -> None:
    tracker = EpochTracker(reader)
    older = tracker.start(10)
    assert next(older)["id"].tolist() == list(range(10))
    assert ids(tracker.start(8)) == list(range(100))
    with pytest.raises(InvalidArgumentError, match=r"the loader was iterated again.*only one position"):
        next(older)


def test_loop_that_is_never_advanced_does_not_end_the_older_one(reader: petastore.Reader) -> None:
    tracker = EpochTracker(reader)
    tracker.start(8)
    older = tracker.start(8)
    assert next(older)["id"].tolist() == list(range(8))
    tracker.start(8)
    assert ids(older) == list(range(8, 100))


def test_loop_can_continue_in_another_thread(reader: petastore.Reader) -> None:
    batches = EpochTracker(reader).start(8)
    first = next(batches)["id"].tolist()
    rest: list[int] = []
    thread = threading.Thread(target=lambda: rest.extend(ids(batches)))
    thread.start()
    thread.join()
    assert first + rest == list(range(100))


def test_loop_over_a_stopped_reader_raises(reader: petastore.Reader) -> None:
    reader.stop()
    with pytest.raises(ReaderClosedError):
        next(EpochTracker(reader).start(8))


def begun(batch: petastore.Batch) -> Callable[[], list[int]]:
    return lambda: batch["id"].tolist()


@pytest.mark.parametrize("received", [1, 3, 12, 13])
def test_state_excludes_prefetched_batches(reader: petastore.Reader, received: int) -> None:
    tracker = EpochTracker(reader)
    ahead = tracker.start_ahead(8, begun)
    taken = [next(ahead) for _ in range(received)]
    assert [number for batch in taken for number in batch] == list(range(min(8 * received, 100)))
    assert tracker.state_dict()["position"] == min(8 * received, 100) % 100
    assert (reader.state_dict() == tracker.state_dict()) is (received == 13)
    reader.load_state_dict(tracker.state_dict())
    assert ids(tracker.start(8)) == list(range(8 * received, 100))


def test_state_equals_reader_state_without_prefetched_batches(reader: petastore.Reader) -> None:
    tracker = EpochTracker(reader)
    assert tracker.state_dict() == reader.state_dict()
    next(tracker.start(8))
    assert tracker.state_dict() == reader.state_dict()
    assert tracker.state_dict()["position"] == 8


def test_loop_after_a_break_ignores_prefetched_batches(reader: petastore.Reader) -> None:
    tracker = EpochTracker(reader)
    ahead = tracker.start_ahead(50, begun)
    next(ahead)
    assert ids(tracker.start(50)) == list(range(100))
    assert reader.cursor.first_epoch == 1
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        next(ahead)


def test_loop_starts_at_set_epoch_and_the_next_loop_increments_it(shuffled: Shuffled) -> None:
    orders = [shuffled.epoch(number) for number in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        tracker.set_epoch(3)
        assert ids(tracker.start(8)) == orders[3]
        assert ids(tracker.start(8)) == orders[4]
        next(batches := tracker.start(8))
        tracker.set_epoch(1)
        assert ids(tracker.start(8)) == orders[1]
        with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
            next(batches)


@pytest.mark.parametrize("batches", [3, 13])
def test_loaded_state_resumes_in_its_epoch_or_the_next_one(shuffled: Shuffled, batches: int) -> None:
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        tracker.set_epoch(2)
        taken = tracker.start(8)
        first = ids(next(taken) for _ in range(batches))
        assert tracker.is_over is (batches == 13)
        state = tracker.state_dict()
    following = 3 if batches == 13 else 2
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        reader.load_state_dict(state)
        tracker.set_epoch(following)
        rest = ids(tracker.start(8))
        assert (first + rest if following == 2 else rest) == shuffled.epoch(following)


def in_epoch_2(shuffled: Shuffled, batches: int) -> tuple[list[int], dict[str, Any]]:
    """Return the ids of the first batches of epoch 2, and the state after them."""
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        tracker.set_epoch(2)
        taken = tracker.start(8)
        return ids(next(taken) for _ in range(batches)), tracker.state_dict()


@pytest.mark.parametrize("batches", [3, 13])
def test_set_epoch_from_0_resumes_at_the_loaded_epoch(shuffled: Shuffled, batches: int) -> None:
    first, state = in_epoch_2(shuffled, batches)
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        for _ in range(2):  # the second time, a state is loaded after later epochs were read
            reader.load_state_dict(state)
            tracker.set_epoch(0)
            rest = ids(tracker.start(8))
            assert first + rest == shuffled.epoch(2)
            tracker.set_epoch(1)
            assert ids(tracker.start(8)) == shuffled.epoch(3)


@pytest.mark.parametrize("batches", [3, 13])
def test_loaded_state_is_kept_when_set_epoch_does_not_match(shuffled: Shuffled, batches: int) -> None:
    first, state = in_epoch_2(shuffled, batches)
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        reader.load_state_dict(state)
        tracker.set_epoch(1)
        with pytest.warns(UserWarning, match=r"set_epoch\(1\) .* state of epoch 2 .*call set_epoch\(2\) instead"):
            rest = ids(tracker.start(8))
        assert first + rest == shuffled.epoch(2)
        tracker.set_epoch(2)
        assert ids(tracker.start(8)) == shuffled.epoch(3)


def test_set_epoch_starts_any_epoch_before_the_first_read(shuffled: Shuffled) -> None:
    with shuffled.reader() as reader:
        tracker = EpochTracker(reader)
        tracker.set_epoch(1)
        before = shuffled.reader()
        before.load_state_dict(reader.state_dict())
        tracker.set_epoch(3)
        assert ids(tracker.start(8)) == shuffled.epoch(3)
        reader.load_state_dict(before.state_dict())
        before.stop()
        tracker.set_epoch(4)
        assert ids(tracker.start(8)) == shuffled.epoch(4)


@pytest.mark.parametrize("batches", [3, 13])
def test_set_epoch_ignores_the_position_left_by_another_loader(shuffled: Shuffled, batches: int) -> None:
    """Lightning's `predict` creates another loader over the exhausted validation reader, and calls set_epoch(0)."""
    with shuffled.reader() as reader:
        earlier = EpochTracker(reader)
        assert len(ids(earlier.start(8))) == 100
        assert len(list(itertools.islice(earlier.start(8), batches))) == batches
        tracker = EpochTracker(reader)
        tracker.set_epoch(0)
        assert ids(tracker.start(8)) == shuffled.epoch(0)


def test_set_epoch_raises_for_several_epochs_and_negative_numbers(shuffled: Shuffled) -> None:
    with (
        shuffled.reader(num_epochs=2) as reader,
        pytest.raises(
            InvalidArgumentError,
            match=r"num_epochs must be 1 for set_epoch\(0\), got 2: .*Write make_reader\(…, num_epochs=1\)",
        ),
    ):
        EpochTracker(reader).set_epoch(0)
    with (
        shuffled.reader() as reader,
        pytest.raises(InvalidArgumentError, match="epoch must be an int of at least 0, got -1"),
    ):
        EpochTracker(reader).set_epoch(-1)
    with shuffled.reader(num_epochs=None) as reader:  # endless, for training loops that stop after a number of steps
        tracker = EpochTracker(reader)
        tracker.set_epoch(1)
        assert ids(itertools.islice(tracker.start(8), 13)) == shuffled.epoch(1)
        assert not tracker.is_over
