"""Tests of several threads that share one reader: each row, batch or window goes to exactly one thread."""

from __future__ import annotations

import collections
import concurrent.futures
import functools
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField, make_batch_reader, make_reader, write_dataset
from petastore.codecs import NdarrayCodec
from petastore.errors import ReaderClosedError
from petastore.readers.execution.handouts import Shared
from petastore.work.pools import PoolType
from tests.pace import LONG
from tests.readers import transforms_to_send

ROWS = 3_000
SCHEMA = Unischema(
    "Numbers",
    [
        UnischemaField("id", np.int64),
        UnischemaField("text", np.str_),
        UnischemaField("wave", np.float32, (4,), NdarrayCodec()),
    ],
)
every_pool = pytest.mark.parametrize("pool", ["thread", "process", "dummy"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("shared") / "numbers")
    rows = ({"id": i, "text": f"row {i}", "wave": np.full(4, i, np.float32)} for i in range(ROWS))
    write_dataset(folder, SCHEMA, rows, rows_per_row_group=70)
    return folder


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def taken_by(threads: int, consume: Callable[[list[Any]], None]) -> list[list[Any]]:
    """Return the items that each thread took. All threads start together; an error of one is raised."""
    begin = threading.Barrier(threads)
    taken: list[list[Any]] = [[] for _ in range(threads)]
    problems: list[BaseException] = []

    def run(mine: list[Any]) -> None:
        begin.wait()
        try:
            consume(mine)
        except BaseException as problem:  # noqa: BLE001 - raised again below
            problems.append(problem)

    running = [threading.Thread(target=run, args=(mine,)) for mine in taken]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if problems:
        raise problems[0]
    return taken


def left_of(reader: petastore.Reader) -> Iterator[Any]:
    """Return an iterator of the items up to the end; a loop over a reader that has ended would start again."""
    return iter(functools.partial(next, reader, None), None)


def is_whole(row: Any) -> bool:
    """Return whether all values of a row belong to the same row."""
    return bool(row.text == f"row {row.id}" and (row.wave == row.id).all())


@every_pool
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_each_row_goes_to_one_thread(url: str, pool: PoolType, threads: int) -> None:
    with make_reader(url, reader_pool_type=pool, shuffle_rows=True, seed=3, num_epochs=2) as reader:
        taken = taken_by(threads, lambda mine: mine.extend(left_of(reader)))
        assert reader.last_row_consumed
    rows = [row for mine in taken for row in mine]
    assert collections.Counter(int(row.id) for row in rows) == dict.fromkeys(range(ROWS), 2)
    assert all(map(is_whole, rows))


@every_pool
@pytest.mark.parametrize("threads", [2, 8])
def test_each_batch_of_a_batch_reader_goes_to_one_thread(url: str, pool: PoolType, threads: int) -> None:
    with make_batch_reader(url, reader_pool_type=pool) as reader:
        taken = taken_by(threads, lambda mine: mine.extend(left_of(reader)))
    batches = [batch for mine in taken for batch in mine]
    assert sorted(int(number) for batch in batches for number in batch.id) == list(range(ROWS))
    assert all((batch.wave[:, 0] == batch.id).all() for batch in batches)


@every_pool
@pytest.mark.parametrize("threads", [2, 8])
def test_threads_share_one_iter_batches_iterator(url: str, pool: PoolType, threads: int) -> None:
    with make_reader(url, reader_pool_type=pool, shuffle_rows=True) as reader:
        batches = reader.iter_batches(16)
        taken = taken_by(threads, lambda mine: mine.extend(batches))
    assert sorted(int(number) for mine in taken for batch in mine for number in batch["id"]) == list(range(ROWS))


@pytest.mark.parametrize("pool", ["thread", "process"])
def test_threads_share_transformed_rows(url: str, pool: PoolType) -> None:
    spec = petastore.TransformSpec(transforms_to_send.unchanged)
    with make_reader(url, ["id"], reader_pool_type=pool, workers_count=2, transform_spec=spec) as reader:
        taken = taken_by(4, lambda mine: mine.extend(left_of(reader)))
    assert sorted(int(row.id) for mine in taken for row in mine) == list(range(ROWS))


def test_each_window_goes_to_one_thread(url: str) -> None:
    windows = NGram({0: ["id", "text"], 1: ["id"]}, delta_threshold=1, timestamp_field="id")
    with make_reader(url, windows, shuffle_row_groups=False) as reader:
        taken = taken_by(4, lambda mine: mine.extend(left_of(reader)))
    found = [window for mine in taken for window in mine]
    assert sorted(int(window[0].id) for window in found) == list(range(ROWS - 1))
    assert all(window[1].id == window[0].id + 1 and window[0].text == f"row {window[0].id}" for window in found)


def test_next_after_the_end_raises_stop_iteration_in_any_thread(url: str) -> None:
    with make_reader(url, ["id"]) as reader:
        assert len(list(reader)) == ROWS
        assert taken_by(2, lambda mine: mine.extend(left_of(reader))) == [[], []]
        with pytest.raises(StopIteration):
            next(reader)


def test_each_loop_in_threads_of_a_pool_gets_all_rows(url: str) -> None:
    with make_reader(url, ["id"]) as reader, concurrent.futures.ThreadPoolExecutor(3) as threads:
        all_run = threading.Barrier(3)
        concurrent.futures.wait([threads.submit(all_run.wait) for _ in range(3)])  # so that any of them may run a loop
        for _ in range(6):
            assert threads.submit(lambda: len(list(reader))).result() == ROWS
        assert len(list(reader)) == ROWS


def test_threads_share_several_iterations(url: str) -> None:
    with make_reader(url, ["id"]) as reader:

        def consume(mine: list[Any]) -> None:
            mine.extend(next(reader) for _ in range(ROWS // 4))

        for _ in range(3):
            taken = taken_by(4, consume)
            assert sorted(int(row.id) for mine in taken for row in mine) == list(range(ROWS))
            with pytest.raises(StopIteration):
                next(reader)
            iter(reader)


def test_state_counts_the_rows_of_all_threads(url: str) -> None:
    with make_reader(url, ["id"], shuffle_rows=True, seed=5) as reader:

        def consume(mine: list[Any]) -> None:
            mine.extend(int(next(reader).id) for _ in range(100))

        first = [number for mine in taken_by(4, consume) for number in mine]
        state = reader.state_dict()
    with make_reader(url, ["id"], shuffle_rows=True, seed=5) as reader:
        reader.load_state_dict(state)
        rest = [int(row.id) for row in reader]
    assert sorted(first + rest) == list(range(ROWS))


def test_reader_stop_wakes_all_threads(url: str) -> None:
    with make_reader(url, num_epochs=None) as reader:
        some = threading.Event()

        def consume(mine: list[Any]) -> None:
            for row in reader:
                mine.append(row)
                if len(mine) > 50:
                    some.set()

        def stop_it() -> None:
            some.wait(LONG)
            reader.stop()

        stopping = threading.Thread(target=stop_it)
        stopping.start()
        with pytest.raises(ReaderClosedError):
            taken_by(4, consume)
        stopping.join()


def test_iteration_error_in_one_thread_raises_reader_closed_in_the_others() -> None:
    def fails(_: object) -> Generator[Iterable[int]]:
        yield iter([1])
        raise ZeroDivisionError("on purpose")

    shared = Shared(fails)
    outcomes: list[str] = []

    def consume(mine: list[Any]) -> None:
        try:
            mine.extend(shared)
            outcomes.append("end")
        except ZeroDivisionError:
            outcomes.append("error")
        except ReaderClosedError:
            outcomes.append("closed")

    assert [item for mine in taken_by(3, consume) for item in mine] in ([1], [])
    assert sorted(outcomes) == ["closed", "closed", "error"]
