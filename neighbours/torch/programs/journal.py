"""On-disk journal of a rank's training steps, and the deaths that a test plans for it."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["EPOCHS", "Death", "Journal", "history"]

EPOCHS = 3


@dataclasses.dataclass(frozen=True)
class Death:
    """A planned death of a rank at a place of a step, in its `attempt`-th life, from 0."""

    attempt: int
    rank: int
    step: int
    place: str
    """`"forward"`: the batch is loaded; `"step"`: after the optimizer step; `"saved"`: after the save, if any."""


class Journal:
    """Records one life of one rank."""

    def __init__(self, folder: str | Path, rank: int) -> None:
        self._path = Path(folder) / f"rank-{rank}.jsonl"
        self._rank = rank
        notes = self._path.read_text().splitlines() if self._path.exists() else []
        lives = sum("life" in json.loads(note) for note in notes)
        # torchrun counts lives, including one that ended before its first record.
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", lives))
        self._note(life=self.attempt)
        self._deaths = {Death(*death) for death in json.loads(os.environ.get("DEATHS", "[]"))}

    def _note(self, **what: Any) -> None:
        with self._path.open("a") as notes:
            notes.write(json.dumps(what) + "\n")

    def trained(self, step: int, epoch: int, ids: Sequence[int], state: Any = None) -> None:
        """Record the rows of a training step, numbered from 1."""
        self._note(step=step, epoch=epoch, ids=list(ids), state=state)

    def resumed(self, step: int) -> None:
        """Record the step after which this life resumes."""
        self._note(resumed=step)

    def end(self, loss: float) -> None:
        """Record the final loss."""
        self._note(loss=loss)

    def perhaps_die(self, step: int, place: str) -> None:
        if Death(self.attempt, self._rank, step, place) in self._deaths:
            os._exit(1)


@dataclasses.dataclass
class History:
    """The history of a training run, over all lives and ranks."""

    lives: int
    resumed: list[int]
    """The step after which each life resumed."""
    epochs: list[list[int]]
    """The rows of each epoch in the steps that count: those that no later life repeated."""
    steps: list[int]
    """The number of completed steps of each rank."""
    losses: list[float]
    states: list[list[Any]]
    """The loader's state of each rank after each step that counts."""


def history(folder: str | Path) -> History:
    """Return the combined history of the journals in a folder."""
    found = History(0, [], [[] for _ in range(EPOCHS)], [], [], [])
    for path in sorted(Path(folder).glob("rank-*.jsonl")):
        notes = [json.loads(note) for note in path.read_text().splitlines()]
        counted = {note["step"]: note for note in notes if "step" in note}  # the last record of a step counts
        for note in counted.values():
            found.epochs[note["epoch"]] += note["ids"]
        found.lives = sum("life" in note for note in notes)
        found.resumed = [note["resumed"] for note in notes if "resumed" in note]
        found.steps.append(max(counted))
        # A rank may have finished in a life in which another rank still died.
        found.losses += [note["loss"] for note in notes if "loss" in note][-1:]
        found.states.append([counted[step]["state"] for step in sorted(counted)])
    return found
