"""The epoch and the state with which loops begin, in memory that a dataset shares with its worker processes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from petastore.errors import InvalidArgumentError

__all__ = ["LOADED_LATE", "SharedState"]

LOADED_LATE = (
    "load_state_dict must be called before iter(loader), got a state after this loop had begun. Begin a new loop: it "
    "continues where the state was taken"
)
"""The message of a loop that has begun when a state is loaded."""

_EPOCH, _ORDER_WARNING, _LOADS, _VERSION, _LENGTH = range(5)
_LOOP, _SEED, _LOOP_LOADS, _TAKEN, _TAKEN_BY, _NEWEST, _ENDED, _FIELDS = range(5, 13)
_MOST_WORKERS = 512
_MOST_BYTES = 4096
_MOST_READS = 10_000


class SharedState:
    """The start of loops, in shared memory: nothing else reaches persistent workers, which have a copy of the dataset.

    One process writes records: the one that has the DataLoader. Each state is taken by one loop.

    Example:
        >>> shared = SharedState()
        >>> version = shared.publish({"position": 40})
        >>> shared.read() == (version, {"position": 40})
        True
        >>> [shared.begin(version, worker, seed) for worker, seed in ((0, 7), (1, 7), (0, 7), (1, 7), (0, 8))]
        [True, True, False, False, False]
    """

    def __init__(self) -> None:
        words = _FIELDS + _MOST_WORKERS + _MOST_BYTES // 8
        shared = torch.zeros(words, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
        self.__setstate__(shared)

    def __getstate__(self) -> torch.Tensor:
        return self._shared  # torch shares it with worker processes; it would copy the array

    def __setstate__(self, shared: torch.Tensor) -> None:
        self._shared = shared
        self._words = shared.numpy()
        self._workers = self._words[_FIELDS : _FIELDS + _MOST_WORKERS]
        self._text = self._words[_FIELDS + _MOST_WORKERS :].view(np.uint8)

    @property
    def epoch(self) -> int:
        """The epoch that `set_epoch` named, or that of the state."""
        return int(self._words[_EPOCH])

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._words[_EPOCH] = epoch

    @property
    def order_warning(self) -> int:
        """Code of `ReaderDataset`: whether a loop has begun, and whether a repeated order needs no warning."""
        return int(self._words[_ORDER_WARNING])

    @order_warning.setter
    def order_warning(self, value: int) -> None:
        self._words[_ORDER_WARNING] = value

    @property
    def loads(self) -> int:
        """The number of states that were loaded: a loop that is under way when it changes must end."""
        return int(self._words[_LOADS])

    def count_load(self) -> None:
        """Count a state that was loaded."""
        self._words[_LOADS] += 1

    def publish(self, record: Mapping[str, Any]) -> int:
        """Write a record for the loops that begin from now on, and return its version.

        Raises:
            InvalidArgumentError: The record is too large.
        """
        text = np.frombuffer(json.dumps(record).encode(), np.uint8)
        if len(text) > _MOST_BYTES:
            raise InvalidArgumentError(f"state must be at most {_MOST_BYTES:,} bytes as JSON, got {len(text):,}")
        version = int(self._words[_VERSION])
        self._words[_VERSION] = version + 1  # odd while the record is being written
        self._text[: len(text)] = text
        self._words[_LENGTH] = len(text)
        self._words[_VERSION] = version + 2
        return version + 2

    def read(self) -> tuple[int, Any]:
        """Return the version of the record and the record: 0 and None where nothing was published.

        Raises:
            InvalidArgumentError: The process that wrote the record ended meanwhile.
        """
        for _ in range(_MOST_READS):
            version = int(self._words[_VERSION])
            text = self._text[: self._words[_LENGTH]].tobytes()
            if version % 2 == 0 and version == self._words[_VERSION]:
                return version, json.loads(text) if version else None
            time.sleep(0.001)
        raise InvalidArgumentError("internal error: a process ended while it wrote the state that workers begin with")

    def begin(self, version: int, worker: int | None, seed: int) -> bool:
        """Begin a loop, or join the one that another worker has begun; return whether it begins with the state.

        Args:
            version: The version of the state.
            worker: The worker that asks; None is the process that has the loader.
            seed: A number that the workers of one loop share. The next loop may have the same number, where torch's
                generator got the same seed before each.

        Raises:
            InvalidArgumentError: The state was loaded after another worker had begun the loop.
        """
        words, number = self._words, (worker or 0) % _MOST_WORKERS
        if worker is None or words[_SEED] != seed or self._workers[number] == words[_LOOP]:
            words[_LOOP], words[_SEED], words[_LOOP_LOADS] = words[_LOOP] + 1, seed, words[_LOADS]
        self._workers[number] = loop = words[_LOOP]
        if words[_LOOP_LOADS] != words[_LOADS]:
            raise InvalidArgumentError(LOADED_LATE)
        if words[_TAKEN] != version:
            words[_TAKEN_BY], words[_TAKEN] = loop, version
        takes = bool(version and words[_TAKEN_BY] == loop)
        words[_NEWEST] = version if takes else 0
        return takes

    def is_taken(self, version: int) -> bool:
        """Return whether a loop has begun with the state of a version."""
        return bool(self._words[_TAKEN] == version)

    def is_newest(self, version: int) -> bool:
        """Return whether the newest loop began with the state of a version."""
        return bool(self._words[_NEWEST] == version)

    def has_ended(self, version: int) -> bool:
        """Return whether a worker has come to the end of the loop that began with the state of a version."""
        return bool(self._words[_ENDED] == version)

    def end_loop(self) -> None:
        """Note that a worker has come to the end of the newest loop."""
        self._words[_ENDED] = self._words[_NEWEST]
