"""State of PyTorch datasets and samplers: the position of an iteration.

`SharedState` shares the position with worker processes.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.utils.data

from petastore.adapters.epoch_tracker import EpochNumbers, resumed_in
from petastore.errors import InvalidArgumentError
from petastore.plan.cursor import Cursor
from petastore.plan.plan import Plan
from petastore.plan.request import Shard, whole_number
from petastore.plan.workers import WorkerPlan

__all__ = ["LOADED_LATE", "SamplingPass", "SharedState", "pass_in_epoch", "worker_plan"]


@dataclasses.dataclass
class SamplingPass:
    """Progress of one iteration, which began at the cursor `begin`."""

    begin: Cursor
    given: int = 0
    """Number of batches since `begin`: in a dataset, batches of this worker; in a sampler, batches of all workers."""
    first: int = 0
    """Number of batches between `begin` and the position of a state that was loaded into a sampler; otherwise 0."""
    is_loaded: bool = False
    """Whether a state was loaded, and the loop that resumes from the state has not begun."""
    is_own: bool = False
    """Whether a worker process loaded the state for itself."""
    is_resumed: bool = False
    """Whether this loop resumed from a loaded state."""
    is_begun: bool = False
    """Whether the first batch was requested."""
    is_over: bool = False
    """Whether this process has yielded the last batch of its iteration."""


def pass_in_epoch(epochs: EpochNumbers, this_pass: SamplingPass | None, number: int) -> tuple[int, SamplingPass | None]:
    """Return the epoch for a `set_epoch` number, and the loaded position in it.

    The position is None if no state was loaded, or if the state belongs to another epoch.
    """
    number = whole_number(number, name="epoch", least=0)
    if this_pass is None or not this_pass.is_loaded:
        return epochs.meant(number), None
    epoch = epochs.meant(number, this_pass.begin, given=this_pass.given)
    begin = resumed_in(this_pass.begin, epoch)
    return epoch, None if begin is None else dataclasses.replace(this_pass, begin=begin)


def worker_plan(plan: Plan, worker: Shard, begin: Cursor) -> WorkerPlan:
    """Return the plan of one worker: its part of a rank's plan, from `begin` on."""
    return WorkerPlan(plan.inventory, plan.request, plan.selection, worker=worker, begin=begin)


LOADED_LATE = (
    "load_state_dict must be called before iter(loader), got a state after this loop had begun. Start a new loop: it "
    "resumes from the state"
)
"""Error text for a loop that was already running when a state was loaded."""

_EPOCH, _ORDER_WARNING, _LOADS, _VERSION, _LENGTH, _LOOP, _TAKEN, _NEWEST, _ENDED, _FIELDS = range(10)
_HALF = 31
"""Bits of each of the two numbers in one word."""
_MOST_WORKERS = 512
_MOST_BYTES = 4096
_MOST_READS = 10_000


class SharedState:
    """The epoch or loaded state with which the next loop begins, in shared memory.

    Shared memory is needed because persistent workers have their own copy of the dataset. Only the process that has the
    DataLoader writes records. Each loaded state is used by one loop.

    Example:
        >>> shared = SharedState()
        >>> version = shared.publish({"position": 40})
        >>> shared.read() == (version, {"position": 40})
        True
        >>> [shared.begin(version, worker, seed, 2) for worker, seed in ((0, 7), (1, 7), (0, 7), (1, 7), (0, 8))]
        [True, True, False, False, False]
    """

    def __init__(self) -> None:
        words = _FIELDS + _MOST_WORKERS + _MOST_BYTES // 8
        shared = torch.zeros(words, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.__setstate__(shared)

    def __getstate__(self) -> torch.Tensor:
        return self._shared  # torch shares a tensor with worker processes, but would copy a NumPy array

    def __setstate__(self, shared: torch.Tensor) -> None:
        self._shared = shared
        self._words = shared.numpy()
        self._workers = self._words[_FIELDS : _FIELDS + _MOST_WORKERS]
        self._text = self._words[_FIELDS + _MOST_WORKERS :].view(np.uint8)

    @property
    def epoch(self) -> int:
        """Epoch that `set_epoch` set, or epoch of the loaded state."""
        return int(self._words[_EPOCH])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._words[_EPOCH] = epoch

    @property
    def order_warning(self) -> int:
        """State of the warning that loops of a `ReaderDataset` repeat the same order.

        0: no loop has begun since the dataset was created or a state was loaded. 1: a loop has begun without
        `set_epoch`. 2: no warning is due, because `set_epoch` was called or the warning was shown.
        """
        return int(self._words[_ORDER_WARNING])

    @order_warning.setter
    def order_warning(self, value: int) -> None:
        self._words[_ORDER_WARNING] = value

    @property
    def loads(self) -> int:
        """Number of states loaded so far: a running loop must end when this number changes."""
        return int(self._words[_LOADS])

    def count_load(self) -> None:
        """Count a state that was loaded."""
        self._words[_LOADS] += 1

    def publish(self, record: Mapping[str, Any]) -> int:
        """Write to shared memory how loops that begin later start; return the version number of the record.

        Args:
            record: JSON values, such as a loaded state; they replace the previous record.

        Raises:
            InvalidArgumentError: The record is too large.
        """
        text = np.frombuffer(json.dumps(record).encode(), np.uint8)
        if len(text) > _MOST_BYTES:
            raise InvalidArgumentError(
                f"state must have at most {_MOST_BYTES:,} bytes as JSON, got {len(text):,}. Pass what state_dict() "
                "returned"
            )
        version = int(self._words[_VERSION])
        self._words[_VERSION] = version + 1  # odd while the record is being written
        self._text[: len(text)] = text
        self._words[_LENGTH] = len(text)
        self._words[_VERSION] = version + 2
        return version + 2

    def read(self) -> tuple[int, Any]:
        """Return the record and its version; 0 and None if nothing was published.

        Raises:
            InvalidArgumentError: The process that wrote the record ended before the record was complete.
        """
        for _ in range(_MOST_READS):
            version = int(self._words[_VERSION])
            text = self._text[: self._words[_LENGTH]].tobytes()
            if version % 2 == 0 and version == self._words[_VERSION]:
                return version, json.loads(text) if version else None
            time.sleep(0.001)
        raise InvalidArgumentError(
            "internal error: a process ended while it wrote the state with which workers begin. Start the training "
            "program again, and load the state there"
        )

    def begin(self, version: int, worker: int | None, seed: int, count: int) -> bool:
        """Begin a loop, or join the loop that another worker began.

        Return whether the loop resumes from the loaded state.

        Args:
            version: The version of the state.
            worker: Number of the calling worker; None means the process that has the loader.
            seed: Number that the workers of one loop share. The next loop may have the same number, if the user sets
                the same torch seed before each loop.
            count: Number of workers.

        Raises:
            InvalidArgumentError: The state was loaded after another worker had begun the loop.
        """
        # Workers begin at the same time, and share no lock. So two numbers that belong together are written as one
        # word, and all workers of a loop write the same value.
        words, number = self._words, (worker or 0) % _MOST_WORKERS
        newest, key = _numbers(words[_LOOP])
        own_key = hash((seed, worker is None, count)) & ((1 << _HALF) - 1)
        loop = newest
        if worker is None or key != own_key or _numbers(self._workers[number])[0] == newest:
            loop += 1
            words[_LOOP] = _word(loop, own_key)
        began = self._workers[number] = _word(loop, words[_LOADS])
        if ((self._workers >> _HALF == loop) & (self._workers != began)).any():
            raise InvalidArgumentError(LOADED_LATE)
        if _numbers(words[_TAKEN])[0] != version:
            words[_TAKEN] = _word(version, loop)
        takes = bool(version and words[_TAKEN] == _word(version, loop))
        words[_NEWEST] = version if takes else 0
        return takes

    def is_taken(self, version: int) -> bool:
        """Return whether a loop has begun with the state of a version."""
        return _numbers(self._words[_TAKEN])[0] == version

    def is_newest(self, version: int) -> bool:
        """Return whether the newest loop began with the state of a version."""
        return bool(self._words[_NEWEST] == version)

    def has_ended(self, version: int) -> bool:
        """Return whether a worker has finished the loop that began with a version's state."""
        return bool(self._words[_ENDED] == version)

    def end_loop(self) -> None:
        """Record that a worker has finished the newest loop."""
        self._words[_ENDED] = self._words[_NEWEST]


def _word(first: int, second: int) -> int:
    """Return two numbers as one word, which other processes never see half written."""
    return int(first) << _HALF | int(second)


def _numbers(word: int) -> tuple[int, int]:
    """Return the two numbers of a word."""
    return int(word) >> _HALF, int(word) & ((1 << _HALF) - 1)
