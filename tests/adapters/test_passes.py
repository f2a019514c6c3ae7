"""One pass over a reader at a time, whoever asks from whatever thread."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import petastore
from petastore.adapters.passes import Passes
from petastore.errors import InvalidArgumentError, ReaderClosedError


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[petastore.Reader]:
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(tmp_path / "numbers", schema, [{"id": i} for i in range(100)], rows_per_row_group=7)
    with petastore.make_reader(tmp_path / "numbers", shuffle_row_groups=False) as reader:
        yield reader


class Shuffled:
    """A dataset of a hundred rows, read in an order of its own in each epoch."""

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
    with pytest.raises(InvalidArgumentError, match=r"the loader was iterated again.*one place at a time"):
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
    with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
        next(ahead)


def test_a_pass_begins_with_the_epoch_that_was_told_and_the_next_one_counts_on(shuffled: Shuffled) -> None:
    orders = [shuffled.epoch(number) for number in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    with shuffled.reader() as reader:
        passes = Passes(reader)
        passes.set_epoch(3)
        assert ids(passes.start(8)) == orders[3]
        assert ids(passes.start(8)) == orders[4]
        next(batches := passes.start(8))
        passes.set_epoch(1)
        assert ids(passes.start(8)) == orders[1]
        with pytest.raises(InvalidArgumentError, match="the loader was iterated again"):
            next(batches)


@pytest.mark.parametrize("batches", [3, 13])
def test_a_loaded_state_is_gone_on_with_in_its_epoch_and_the_one_that_follows_its_end(
    shuffled: Shuffled, batches: int
) -> None:
    with shuffled.reader() as reader:
        passes = Passes(reader)
        passes.set_epoch(2)
        taken = passes.start(8)
        first = ids(next(taken) for _ in range(batches))
        assert passes.is_over is (batches == 13)
        state = passes.state_dict()
    following = 3 if batches == 13 else 2
    with shuffled.reader() as reader:
        passes = Passes(reader)
        reader.load_state_dict(state)
        passes.set_epoch(following)
        rest = ids(passes.start(8))
        assert (first + rest if following == 2 else rest) == shuffled.epoch(following)


@pytest.mark.parametrize("batches", [3, 13])
def test_who_counts_from_0_in_each_process_goes_on_with_what_was_loaded_and_then_counts_on(
    shuffled: Shuffled, batches: int
) -> None:
    with shuffled.reader() as reader:
        passes = Passes(reader)
        passes.set_epoch(2)
        taken = passes.start(8)
        first = ids(next(taken) for _ in range(batches))
        state = passes.state_dict()
    with shuffled.reader() as reader:
        passes = Passes(reader)
        for _ in range(2):  # and again where it goes back to the state later
            reader.load_state_dict(state)
            passes.set_epoch(0)
            rest = ids(passes.start(8))
            assert first + rest == shuffled.epoch(2)
            passes.set_epoch(1)
            assert ids(passes.start(8)) == shuffled.epoch(3)


@pytest.mark.parametrize("batches", [3, 13])
def test_a_loaded_state_is_not_dropped_for_a_number_that_does_not_fit(shuffled: Shuffled, batches: int) -> None:
    with shuffled.reader() as reader:
        passes = Passes(reader)
        passes.set_epoch(2)
        taken = passes.start(8)
        first = ids(next(taken) for _ in range(batches))
        state = passes.state_dict()
    with shuffled.reader() as reader:
        passes = Passes(reader)
        reader.load_state_dict(state)
        passes.set_epoch(1)
        with pytest.warns(UserWarning, match=r"set_epoch\(1\) .* state of epoch 2 .*Write set_epoch\(2\)"):
            rest = ids(passes.start(8))
        assert first + rest == shuffled.epoch(2)
        passes.set_epoch(2)
        assert ids(passes.start(8)) == shuffled.epoch(3)


def test_where_nothing_was_read_yet_any_epoch_begins(shuffled: Shuffled) -> None:
    with shuffled.reader() as reader:
        passes = Passes(reader)
        passes.set_epoch(1)
        before = shuffled.reader()
        before.load_state_dict(reader.state_dict())
        passes.set_epoch(3)
        assert ids(passes.start(8)) == shuffled.epoch(3)
        reader.load_state_dict(before.state_dict())
        before.stop()
        passes.set_epoch(4)
        assert ids(passes.start(8)) == shuffled.epoch(4)


@pytest.mark.parametrize("batches", [3, 13])
def test_where_another_loader_has_left_the_reader_is_no_state_that_was_loaded(shuffled: Shuffled, batches: int) -> None:
    """As Lightning predicts by a loader of its own over a reader of validation, which has no batch left, and says 0."""
    with shuffled.reader() as reader:
        earlier = Passes(reader)
        assert len(ids(earlier.start(8))) == 100
        assert len(list(itertools.islice(earlier.start(8), batches))) == batches
        passes = Passes(reader)
        passes.set_epoch(0)
        assert ids(passes.start(8)) == shuffled.epoch(0)


def test_who_counts_epochs_must_not_be_given_two_for_one(shuffled: Shuffled) -> None:
    with (
        shuffled.reader(num_epochs=2) as reader,
        pytest.raises(InvalidArgumentError, match=r"write make_reader\(…, num_epoch"),
    ):
        Passes(reader).set_epoch(0)
    with shuffled.reader() as reader, pytest.raises(InvalidArgumentError, match="epoch=-1"):
        Passes(reader).set_epoch(-1)
    with shuffled.reader(num_epochs=None) as reader:  # for who stops after some steps
        passes = Passes(reader)
        passes.set_epoch(1)
        assert ids(itertools.islice(passes.start(8), 13)) == shuffled.epoch(1)
        assert not passes.is_over
