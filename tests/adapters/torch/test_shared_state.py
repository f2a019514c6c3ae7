"""Tests of states loaded late, twice, with live workers, at an epoch's end or with filters: resume, or an error."""

from __future__ import annotations

import gc
import itertools
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
import torch.utils.data

import petastore
from petastore.adapters.torch import BlockSampler, DataLoader, InMemBatchedDataLoader, MapDataset, ReaderDataset
from petastore.adapters.torch.shared_state import SharedState
from petastore.errors import InvalidArgumentError, ReaderClosedError

pytestmark = [
    # More workers than CPUs are slow, but correct.
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # Loops without set_epoch repeat the order of the last loop, and warn about it.
    pytest.mark.filterwarnings("ignore:this loop has the same order"),
]

ROWS, BATCH = 400, 10
FORK = multiprocessing.get_context("fork")
WORKERS = [
    pytest.param({"num_workers": 0}, id="no workers"),
    pytest.param({"num_workers": 2}, id="2 workers"),
    pytest.param({"num_workers": 2, "persistent_workers": True}, id="2 persistent workers"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("late") / "numbers"
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(folder, schema, ({"id": i} for i in range(ROWS)), rows_per_row_group=35)
    return str(folder)


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].tolist()]


def ids_or_message(batches: Any) -> list[int] | str:
    """Return the ids of a loop, or the message of its error."""
    try:
        return ids(batches)
    except InvalidArgumentError as problem:
        return str(problem)
    finally:
        gc.collect()  # a worker's error stays in a reference cycle with the frame that references the workers


class Shuffled:
    """A shuffled dataset, and torch's loader over it."""

    def __init__(self, url: str, workers: dict[str, Any], **options: Any) -> None:
        self.url, self.num_workers = url, workers["num_workers"]
        self.options = {"batch_size": BATCH, "shuffle_rows": True, "seed": 3, **options}
        self.dataset = ReaderDataset(url, ["id"], **self.options)
        self.loader: Any = torch.utils.data.DataLoader(self.dataset, batch_size=None, **workers)

    def state_after(self, batches: int) -> dict[str, Any]:
        """Return the state of another process after this number of batches of its first loop."""
        dataset = ReaderDataset(self.url, ["id"], **self.options)
        state: dict[str, Any] = json.loads(json.dumps(dataset.state_after(batches, num_workers=self.num_workers)))
        return state


@pytest.mark.parametrize("workers", WORKERS)
def test_dataloader_of_shared_state_resumes_and_later_epochs_are_whole(url: str, workers: dict[str, Any]) -> None:
    shuffled = Shuffled(url, workers)
    dataset, loader, num_workers = shuffled.dataset, shuffled.loader, shuffled.num_workers
    assert len(loader) == 40
    whole = ids(loader)
    dataset.load_state_dict(shuffled.state_after(30))  # into running workers; the next state replaces it
    dataset.load_state_dict(shuffled.state_after(14))
    assert len(loader) == 26
    assert ids(loader) == whole[140:]
    assert len(loader) == 40
    assert dataset.state_after(16, num_workers=num_workers) == shuffled.state_after(30)
    assert ids(loader) == whole
    assert dataset.state_after(16, num_workers=num_workers) == shuffled.state_after(16)
    next(iter(loader))
    dataset.load_state_dict(shuffled.state_after(30))  # after an abandoned loop
    assert len(loader) == 10
    assert ids(loader) == whole[300:]
    assert ids(loader) == whole  # more than the 10 batches of len(), about which torch would warn


@pytest.mark.parametrize("workers", WORKERS)
def test_state_loaded_after_iter_is_used_or_raises(url: str, workers: dict[str, Any]) -> None:
    shuffled = Shuffled(url, workers)
    dataset, loader, state = shuffled.dataset, shuffled.loader, shuffled.state_after(14)
    whole = ids(loader)
    batches = iter(loader)
    dataset.load_state_dict(state)
    rest = ids_or_message(batches)
    if rest != whole[140:]:
        assert "load_state_dict must be called before iter(loader)" in str(rest)
        assert ids(loader) == whole[140:]
    batches = iter(loader)
    assert next(batches)["id"].tolist() == whole[:10]
    dataset.load_state_dict(state)
    assert "load_state_dict must be called before iter(loader)" in str(ids_or_message(batches))
    assert ids(loader) == whole[140:]


class WithSlowWorker(ReaderDataset):
    """A dataset whose worker 1 waits for an event before or after `iter(dataset)`."""

    before: Any = None
    """Event for which workers wait that start from now on, before `iter(dataset)`."""
    after: Any = None
    """The same, after `iter(dataset)`."""

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        is_slow = info is not None and info.id == 1
        assert not is_slow or self.before is None or self.before.wait(60)
        batches = super().__iter__()
        assert not is_slow or self.after is None or self.after.wait(60)
        return batches


def slow(url: str, workers: dict[str, Any]) -> tuple[WithSlowWorker, Any, list[int], dict[str, Any]]:
    """Return a dataset with a slow worker, its loader, the ids of a whole loop, and a state after 14 batches."""
    shuffled = Shuffled(url, workers)
    dataset = WithSlowWorker(url, ["id"], **shuffled.options)
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, multiprocessing_context=FORK, **workers)
    return dataset, loader, ids(shuffled.loader), shuffled.state_after(14)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("workers", WORKERS[1:])
def test_state_loaded_before_the_first_batch_of_a_slow_worker_is_used_by_the_next_loop(
    url: str, workers: dict[str, Any], moment: str
) -> None:
    dataset, loader, whole, state = slow(url, workers)
    event = FORK.Event()
    setattr(dataset, moment, event)
    batches = iter(loader)
    assert next(batches)["id"].tolist() == whole[:10]
    dataset.load_state_dict(state)
    event.set()
    assert "load_state_dict must be called before iter(loader)" in str(ids_or_message(batches))
    assert ids(loader) == whole[140:]
    assert ids(loader) == whole


def test_state_loaded_before_a_persistent_worker_begins_its_second_loop_is_used_by_the_next_loop(url: str) -> None:
    dataset, loader, whole, state = slow(url, {"num_workers": 2, "persistent_workers": True})
    dataset.before = FORK.Event()
    dataset.before.set()
    assert ids(loader) == whole
    dataset.before.clear()
    batches = iter(loader)
    assert next(batches)["id"].tolist() == whole[:10]
    dataset.load_state_dict(state)
    dataset.before.set()
    assert "load_state_dict must be called before iter(loader)" in str(ids_or_message(batches))
    assert ids(loader) == whole[140:]
    assert ids(loader) == whole


def test_slow_worker_of_an_earlier_loop_does_not_take_the_state_of_the_next_loop(url: str) -> None:
    dataset, loader, whole, state = slow(url, {"num_workers": 2})
    dataset.before = FORK.Event()
    batches, earlier = iter(loader), dataset.before
    assert next(batches)["id"].tolist() == whole[:10]
    dataset.load_state_dict(state)
    dataset.before = FORK.Event()
    resumed = iter(loader)
    assert next(resumed)["id"].tolist() == whole[140:150]
    earlier.set()
    assert "load_state_dict must be called before iter(loader)" in str(ids_or_message(batches))
    dataset.before.set()
    assert ids(resumed) == whole[150:]


@pytest.mark.parametrize("workers", [WORKERS[0], WORKERS[2]])
def test_set_epoch_works_after_a_loaded_state(url: str, workers: dict[str, Any]) -> None:
    shuffled = Shuffled(url, workers)
    dataset, loader = shuffled.dataset, shuffled.loader
    orders = []
    for epoch in range(2):
        dataset.set_epoch(epoch)
        orders.append(ids(loader))
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(ROWS))
    dataset.load_state_dict(shuffled.state_after(14))
    for epoch, rows in enumerate([orders[0][140:], orders[1]]):
        dataset.set_epoch(epoch)
        assert len(loader) == len(rows) / BATCH
        assert ids(loader) == rows
    dataset.load_state_dict(shuffled.state_after(ROWS // BATCH))  # the end of an epoch
    assert len(loader) == 0
    assert ids(loader) == []
    assert ids(loader) == orders[0]
    dataset.load_state_dict(shuffled.state_after(0))  # the start of an epoch, for which any set_epoch is accepted
    dataset.set_epoch(1)
    assert ids(loader) == orders[1]


def test_loop_of_two_epochs_resumed_mid_epoch_reads_the_remaining_batches(url: str) -> None:
    for workers in ({"num_workers": 0}, {"num_workers": 2}):
        shuffled = Shuffled(url, workers, num_epochs=2, filters=[("id", "<", 200)], filter_cache=False)
        whole = ids(shuffled.loader)
        assert sorted(whole) == sorted([*range(200), *range(200)])
        shuffled.dataset.load_state_dict(shuffled.state_after(26))
        assert len(shuffled.loader) == 14
        assert ids(shuffled.loader) == whole[260:]
        assert ids(shuffled.loader) == whole
        other = ReaderDataset(url, ["id"], batch_size=BATCH, shuffle_rows=True, seed=3, num_epochs=2)
        with pytest.raises(InvalidArgumentError, match="another dataset or filter"):
            other.load_state_dict(shuffled.state_after(26))


def test_state_is_used_once_even_if_worker_seeds_of_two_loops_are_equal(url: str) -> None:
    shuffled = Shuffled(url, {"num_workers": 2})
    rows = []
    shuffled.dataset.load_state_dict(shuffled.state_after(14))
    for _ in range(2):
        torch.manual_seed(0)  # torch draws the seeds of its workers from this seed
        rows.append(len(ids(shuffled.loader)))
    assert rows == [260, ROWS]


def meeting(shared: SharedState, version: int, instruction: int) -> tuple[list[bool], bool]:
    """Let worker 1 begin a loop within `begin` of worker 0, before an instruction.

    Return whether each of them takes the state, and whether `begin` has so many instructions.
    """
    seen, taken = 0, {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code is not SharedState.begin.__code__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == instruction:
                sys.settrace(None)
                taken[1] = shared.begin(version, 1, 7, 2)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        taken[0] = shared.begin(version, 0, 7, 2)
    finally:
        sys.settrace(before)
    return [taken[worker] for worker in sorted(taken)], 1 in taken


def test_workers_that_begin_at_the_same_time_take_the_same_state() -> None:
    instruction, is_within = 1, True
    while is_within:
        shared = SharedState()
        assert [shared.begin(0, worker, 7, 2) for worker in range(2)] == [False, False]
        version = shared.publish({"position": 40})
        taken, is_within = meeting(shared, version, instruction)
        assert taken == [True, True] if is_within else [True]
        if is_within:
            assert [shared.begin(version, worker, 7, 2) for worker in range(2)] == [False, False]
            assert not any(meeting(shared, version, instruction)[0])
        instruction += 1
    assert instruction > 50


@pytest.fixture
def open_loader(url: str) -> Iterator[Callable[..., DataLoader]]:
    readers = []

    def opened(**options: Any) -> DataLoader:
        readers.append(petastore.make_reader(url, ["id"], shuffle_rows=True, seed=3, **options))
        return DataLoader(readers[-1], batch_size=BATCH)

    yield opened
    for reader in readers:
        reader.stop()
        reader.join()


def test_len_of_a_resumed_dataloader_is_the_number_of_remaining_batches(open_loader: Callable[..., DataLoader]) -> None:
    whole = open_loader()
    assert len(whole) == 40
    batches = iter(whole)
    rows = ids(itertools.islice(batches, 14))
    assert len(whole) == 40
    state = whole.state_dict()
    rows += ids(batches)
    assert len(whole) == 40
    loader = open_loader()
    for _ in range(2):
        loader.load_state_dict(state)
        assert len(loader) == 26
        batches = iter(loader)
        assert ids([next(batches)]) == rows[140:150]
        assert len(loader) == 26
        assert ids(batches) == rows[150:]
        assert len(loader) == 40
    assert len(ids(loader)) == ROWS
    loader.load_state_dict(state)
    loader.set_epoch(0)
    assert len(loader) == 26
    assert ids(loader) == rows[140:]
    loader.set_epoch(1)
    assert len(loader) == 40
    assert len(ids(loader)) == ROWS
    loader.load_state_dict(whole.state_dict())
    assert len(loader) == 0
    assert ids(loader) == []


def test_len_of_two_resumed_epochs_is_the_remaining_batches(open_loader: Callable[..., DataLoader]) -> None:
    whole = open_loader(num_epochs=2)
    assert len(whole) == 80
    batches = iter(whole)
    ids(itertools.islice(batches, 50))
    loader = open_loader(num_epochs=2)
    loader.load_state_dict(whole.state_dict())
    assert len(loader) == 30
    assert len(list(loader)) == 30


def test_load_state_dict_during_a_loop_raises(open_loader: Callable[..., DataLoader]) -> None:
    loader = open_loader()
    batches = iter(loader)
    ids(itertools.islice(batches, 14))
    loader.load_state_dict(loader.state_dict())
    for _ in range(2):
        with pytest.raises(ReaderClosedError, match="load_state_dict, reset or reshard of its reader was called"):
            next(batches)
    assert len(ids(loader)) == ROWS - 140


def test_dataloader_uses_a_state_loaded_after_iter(open_loader: Callable[..., DataLoader]) -> None:
    loader = open_loader()
    ids(itertools.islice(iter(loader), 14))
    late = open_loader()
    batches = iter(late)
    late.load_state_dict(loader.state_dict())
    assert len(ids(batches)) == ROWS - 140


def test_block_sampler_state_loaded_after_iter_is_used_or_raises(url: str) -> None:
    dataset = MapDataset(url, ["id"])

    def sampler() -> BlockSampler:
        return BlockSampler(dataset, batch_size=BATCH, seed=3)

    whole = list(sampler())
    state = sampler().state_after(14)
    late = sampler()
    batches = iter(late)
    late.load_state_dict(state)
    assert len(late) == 26
    assert list(batches) == whole[14:]
    assert len(late) == 40
    batches = iter(late)
    next(batches)
    late.load_state_dict(state)
    for error in (InvalidArgumentError, ReaderClosedError):
        with pytest.raises(error, match=r"load_state_dict must be called before iter\(loader\)"):
            next(batches)
    assert list(late) == whole[14:]


def test_in_memory_loader_state_loaded_after_iter_is_used_or_raises(url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        loader = InMemBatchedDataLoader(reader, BATCH, shuffle=True)
    batches = iter(loader)
    ids(itertools.islice(batches, 14))
    state = loader.state_dict()
    rest = ids(batches)
    assert len(loader) == 40
    batches = iter(loader)
    loader.load_state_dict(state)
    assert len(loader) == 26
    assert ids(batches) == rest
    batches = iter(loader)
    next(batches)
    loader.load_state_dict(state)
    with pytest.raises(InvalidArgumentError, match=r"load_state_dict must be called before iter\(loader\)"):
        next(batches)
    assert len(loader) == 26
    assert ids(loader) == rest
    assert len(loader) == 40
