"""What a rank trained on, step by step, on disk at once; and the deaths that a test has arranged for it."""

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
    """That a rank ends without a word at a place of a step, in its `attempt`-th life, from 0."""

    attempt: int
    rank: int
    step: int
    place: str
    """`"forward"`: it has the batch; `"step"`: it has stepped; `"saved"`: after what it saves then."""


class Journal:
    """Notes of one life of one rank."""

    def __init__(self, folder: str | Path, rank: int) -> None:
        self._path = Path(folder) / f"rank-{rank}.jsonl"
        self._rank = rank
        notes = self._path.read_text().splitlines() if self._path.exists() else []
        lives = sum("life" in json.loads(note) for note in notes)
        # torchrun counts lives; one that was ended before its first note counts there, too.
        self.attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", lives))
        self._note(life=self.attempt)
        self._deaths = {Death(*death) for death in json.loads(os.environ.get("DEATHS", "[]"))}

    def _note(self, **what: Any) -> None:
        with self._path.open("a") as notes:
            notes.write(json.dumps(what) + "\n")

    def trained(self, step: int, epoch: int, ids: Sequence[int], state: Any = None) -> None:
        """Notes that a step, from 1, is trained on these rows."""
        self._note(step=step, epoch=epoch, ids=list(ids), state=state)

    def resumed(self, step: int) -> None:
        """Notes after which step this life goes on."""
        self._note(resumed=step)

    def end(self, loss: float) -> None:
        """Notes what came out."""
        self._note(loss=loss)

    def perhaps_die(self, step: int, place: str) -> None:
        if Death(self.attempt, self._rank, step, place) in self._deaths:
            os._exit(1)


@dataclasses.dataclass
class History:
    """What became of a training, over all lives and ranks."""

    lives: int
    resumed: list[int]
    """After which step each life went on."""
    epochs: list[list[int]]
    """Of each epoch, the rows of the steps that count: those that no later life did again."""
    steps: list[int]
    """Steps that each rank has behind it."""
    losses: list[float]
    states: list[list[Any]]
    """Of each rank, the loader's state after each step that counts."""


def history(folder: str | Path) -> History:
    """What the journals in a folder say together."""
    found = History(0, [], [[] for _ in range(EPOCHS)], [], [], [])
    for path in sorted(Path(folder).glob("rank-*.jsonl")):
        notes = [json.loads(note) for note in path.read_text().splitlines()]
        counted = {note["step"]: note for note in notes if "step" in note}  # the last one of a step is the one
        for note in counted.values():
            found.epochs[note["epoch"]] += note["ids"]
        found.lives = sum("life" in note for note in notes)
        found.resumed = [note["resumed"] for note in notes if "resumed" in note]
        found.steps.append(max(counted))
        # A rank may have come to the end in a life in which another one had still to die.
        found.losses += [note["loss"] for note in notes if "loss" in note][-1:]
        found.states.append([counted[step]["state"] for step in sorted(counted)])
    return found
