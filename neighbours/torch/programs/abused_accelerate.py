"""Accelerate on two ranks: load states late, twice, into workers, at an epoch's end, and with a filter."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from neighbours.torch.programs.gathered import tell
from petastore import col, make_reader
from petastore.adapters.torch import DataLoader, ReaderDataset
from petastore.errors import PetastoreError

BATCH = 16

Loop = list[list[int]] | str
"""The ids of each batch of a loop, or the error that ended it."""


class Trials:
    """Loaders prepared by one Accelerator, and the states that it saved of them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.accelerator = Accelerator(cpu=True)
        self.ranks: Any = {"cur_shard": self.accelerator.process_index, "shard_count": self.accelerator.num_processes}

    def loader(self, **asked: Any) -> Any:
        """Return a prepared loader; the Accelerator releases the previous one."""
        self.accelerator.free_memory()
        reader = make_reader(self.url, ["id"], **self.ranks, **({"shuffle_rows": True, "seed": 7} | asked))
        return self.accelerator.prepare(DataLoader(reader, batch_size=BATCH))

    def saved(self, steps: int, **asked: Any) -> str:
        """Save the state after some steps of the first epoch; return its path."""
        loader, path = self.loader(**asked), str(self.folder / f"after {steps} {sorted(asked)}")
        loader.set_epoch(0)
        for step, _ in enumerate(loader, start=1):
            if step == steps:
                break
        self.accelerator.save_state(path)
        self.accelerator.wait_for_everyone()
        loader.reader.stop()
        return path

    def whole(self) -> Iterator[Loop]:
        yield from epochs_of(self.loader(), 0, 1, 2)

    def filtered(self) -> Iterator[Loop]:
        yield from epochs_of(self.loader(filters=col("id") >= 50), 0, 1)

    def late(self) -> Iterator[Loop]:
        """Load a state in the middle of a loop."""
        state, loader = self.saved(3), self.loader()
        loader.set_epoch(0)
        batches = iter(loader)
        next(batches)
        self.accelerator.load_state(state)
        yield attempt(lambda: ids(batches))
        yield from epochs_of(loader, 0, 1)

    def twice(self) -> Iterator[Loop]:
        """Load two states, of which the second counts; later load the first one twice."""
        first, second, loader = self.saved(3), self.saved(5), self.loader()
        self.accelerator.load_state(first)
        self.accelerator.load_state(second)
        yield from epochs_of(loader, 0, 1)
        self.accelerator.load_state(first)
        self.accelerator.load_state(first)
        yield from epochs_of(loader, 0, 1)

    def into_workers(self) -> Iterator[Loop]:
        """Load a state into a reader with running worker processes."""
        how: Any = {"reader_pool_type": "process", "workers_count": 2}
        state, loader = self.saved(3, **how), self.loader(**how)
        yield from epochs_of(loader, 0)
        self.accelerator.load_state(state)
        yield from epochs_of(loader, 0, 1)

    def into_workers_of_torch(self) -> Iterator[Loop]:
        """Load a state into a dataset with running persistent workers, which Accelerate does not prepare."""
        dataset = ReaderDataset(self.url, ["id"], batch_size=BATCH, **self.ranks, shuffle_rows=True, seed=7)
        loader: Any = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
        whole = sorted(ids(loader))
        fresh = ReaderDataset(self.url, ["id"], batch_size=BATCH, **self.ranks, shuffle_rows=True, seed=7)
        fresh.load_state_dict(dataset.state_after(4, num_workers=2))
        rest = ids(torch.utils.data.DataLoader(fresh, batch_size=None, num_workers=2))
        dataset.load_state_dict(dataset.state_after(4, num_workers=2))
        loaded = attempt(lambda: ids(loader))
        yield "the rest" if loaded == rest and len(rest) == len(whole) - 4 else f"{loaded}"

    def at_the_end(self) -> Iterator[Loop]:
        """Load a state that was saved after the last batch of an epoch."""
        state, loader = self.saved(7), self.loader()
        self.accelerator.load_state(state)
        yield from epochs_of(loader, 1, 2)

    def behind_a_filter(self) -> Iterator[Loop]:
        how: Any = {"filters": col("id") >= 50}
        state, loader = self.saved(3, **how), self.loader(**how)
        self.accelerator.load_state(state)
        yield from epochs_of(loader, 0, 1)

    def behind_another_filter(self) -> Iterator[Loop]:
        state = self.saved(3, filters=col("id") >= 50)
        self.loader(filters=col("id") >= 60)
        yield attempt(lambda: self.accelerator.load_state(state))


def ids(batches: Iterable[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def attempt(loop: Callable[[], Any]) -> Any:
    """Return the result of a loop, or its error as text."""
    try:
        return loop()
    except PetastoreError as problem:
        return f"{type(problem).__name__}: {problem}"


def epochs_of(loader: Any, *epochs: int) -> Iterator[Loop]:
    for epoch in epochs:
        loader.set_epoch(epoch)
        yield ids(loader)


def main(url: str, folder: str) -> None:
    """Run and print every case."""
    trials = Trials(url, Path(folder))
    cases = (
        trials.whole,
        trials.filtered,
        trials.late,
        trials.twice,
        trials.into_workers,
        trials.into_workers_of_torch,
        trials.at_the_end,
        trials.behind_a_filter,
        trials.behind_another_filter,
    )
    for case in cases:
        tell(case.__name__, list(case()))
    trials.accelerator.free_memory()
    trials.accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
