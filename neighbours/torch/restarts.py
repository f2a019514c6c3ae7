"""Workers that die at random steps, and a comparison with a training run without deaths."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run
from neighbours.torch.programs.journal import EPOCHS, Death, History, history

__all__ = ["STEPS_PER_EPOCH", "assert_as_if_nobody_had_died", "deaths", "ended", "environment_of"]

STEPS_PER_EPOCH = -(-sum(UNEVEN) // 32)
STEPS = EPOCHS * STEPS_PER_EPOCH


def deaths(seed: str, *, every: int = 2) -> list[Death]:
    """Return three deaths, of any rank at any place of any step, one in each of the first three lives."""
    draw = random.Random(seed)  # noqa: S311 (no secret)
    found: list[Death] = []
    behind = 0
    for attempt in range(3):
        # Leave enough steps for the later deaths; a life resumes after the last checkpoint, and dies later than that.
        step = draw.randint(behind + 1, STEPS - 4 * (2 - attempt))
        found.append(Death(attempt, draw.randrange(2), step, draw.choice(["forward", "step", "saved"])))
        behind = step // every * every
    return found


def environment_of(dying: Sequence[Death]) -> dict[str, str]:
    """Return the environment variables of a program whose workers die at these steps."""
    return {
        "DEATHS": json.dumps([dataclasses.astuple(death) for death in dying]),
        # All lives of torchrun 2.13 share one store by default, in which a life may find addresses of the previous one.
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def ended(run: Run, command: list[str], folder: Path, dying: Sequence[Death], *, seconds: float = 120) -> History:
    """Return the history of a program whose workers die at these steps."""
    run(command, environment=environment_of(dying), seconds=seconds)
    return history(folder)


def assert_as_if_nobody_had_died(disturbed: History, undisturbed: History) -> None:
    assert (undisturbed.lives, disturbed.lives) == (1, 4)
    assert disturbed.resumed[-1] > 0
    for one in (undisturbed, disturbed):
        assert [sorted(ids) for ids in one.epochs] == [list(range(sum(UNEVEN)))] * EPOCHS
        assert one.steps == [STEPS, STEPS]
        assert one.states[0] == one.states[1]
    assert len({tuple(ids) for ids in undisturbed.epochs}) == EPOCHS  # each epoch has a different order
    assert disturbed.states == undisturbed.states
    assert len(disturbed.losses) == 2
    assert disturbed.losses == pytest.approx(undisturbed.losses, rel=0, abs=1e-6)
