r"""Data loaders for dlio-benchmark: petastore's, the limit's, and one that never waits.

    dlio_benchmark ++workload.reader.data_loader_classname=benchmarks.accelerators.loaders.PetastoreLoader \
        ++workload.reader.data_loader_sampler=iterative …

DLIO makes a loader, calls `read` once, and iterates `next` in each epoch. Its settings are one object for the process.
"""

from __future__ import annotations

import atexit
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from dlio_benchmark.common.enumerations import DataLoaderType
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader

import petastore
from benchmarks.accelerators.limit import PlainFolder
from benchmarks.accelerators.workloads import DATASET
from petastore.adapters.torch import DataLoader

__all__ = ["LimitLoader", "PetastoreLoader", "ReadyLoader"]


class _Loader(BaseDataLoader):  # type: ignore[misc]
    """What DLIO asks of a loader and ours have nothing to do for."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:
        super().__init__(format_type, dataset_type, epoch_number, DataLoaderType.CUSTOM)
        self.epoch_number: int = epoch_number

    def read(self) -> None:
        pass

    def finalize(self) -> None:
        pass


class PetastoreLoader(_Loader):
    """Batches of decoded tensors from the folder `petastore` of the data folder, shuffled by rows, anew in each epoch.

    Each simulated accelerator is a rank. One reader gives all epochs, one after the other. Everything else is as
    `make_reader` and the torch `DataLoader` have it.
    """

    _batches: Iterator[dict[str, torch.Tensor]] | None = None
    _steps = 0

    def next(self) -> Iterator[dict[str, torch.Tensor]]:
        """The batches of the next epoch."""
        super().next()
        if self._batches is None:
            reader = petastore.make_reader(
                Path(self._args.data_folder, DATASET),
                seed=self._args.seed,
                num_epochs=self._args.epochs,
                shuffle_rows=True,
                cur_shard=self._args.my_rank,
                shard_count=self._args.comm_size,
            )
            atexit.register(_end, reader)  # DLIO does not say which epoch is the last one
            loader = DataLoader(reader, batch_size=self.batch_size)
            self._batches, self._steps = iter(loader), len(loader) // self._args.epochs
        yield from itertools.islice(self._batches, self._steps)


def _end(reader: petastore.Reader) -> None:
    reader.stop()
    reader.join()


class LimitLoader(_Loader):
    """Row groups as the limit decodes them, in the order of the files, as many in a step as have a batch's rows.

    One pass gives all epochs, as petastore's reader does.
    """

    _all_steps: Iterator[list[Any]] | None = None

    def next(self) -> Iterator[list[Any]]:
        """The steps of the next epoch."""
        super().next()
        if self._all_steps is None:
            self._all_steps = self._steps_of(PlainFolder(Path(self._args.data_folder, DATASET)))
        yield from itertools.islice(self._all_steps, self._args.training_steps)

    def _steps_of(self, plain: PlainFolder) -> Iterator[list[Any]]:
        step: list[Any] = []
        at_hand = 0
        for rows, decoded in plain.decoded(self._args.epochs):
            step.append(decoded)
            at_hand += rows
            while at_hand >= self.batch_size:
                at_hand -= self.batch_size
                yield step
                step = []


class ReadyLoader(_Loader):
    """One tensor again and again: what utilisation DLIO's own loop lets one see."""

    def next(self) -> Iterator[torch.Tensor]:
        """As many as an epoch has steps."""
        super().next()
        tensor = torch.zeros(self.batch_size)
        for _ in range(self._args.training_steps):
            yield tensor
