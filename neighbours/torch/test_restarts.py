"""Workers that die at random steps, on two ranks: what was trained in the end is what would have been without."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run
from neighbours.torch.programs.journal import EPOCHS, Death, History, history

pytestmark = pytest.mark.timeout(300)

STEPS_PER_EPOCH = -(-sum(UNEVEN) // 32)
STEPS = EPOCHS * STEPS_PER_EPOCH


def deaths(seed: str, *, every: int = 2) -> list[Death]:
    """Three deaths, of any rank at any place of any step, each in the life after the one before."""
    draw = random.Random(seed)  # noqa: S311 (no secret)
    found: list[Death] = []
    behind = 0
    for attempt in range(3):
        # Room for the further ones; a life goes on after the last checkpoint, and dies later than that.
        step = draw.randint(behind + 1, STEPS - 4 * (2 - attempt))
        found.append(Death(attempt, draw.randrange(2), step, draw.choice(["forward", "step", "saved"])))
        behind = step // every * every
    return found


def trained(run: Run, program: str, url: str, folder: Path, dying: list[Death], *options: str) -> History:
    """The history of a program under `torchrun --nproc-per-node=2 --max-restarts=3`."""
    folder.mkdir()
    torchrun = ["torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=3"]
    run(
        [*torchrun, f"neighbours/torch/programs/{program}.py", url, str(folder), *options],
        # torchrun 2.13 lets all lives share one store, where a life may find addresses of the last one.
        environment={
            "DEATHS": json.dumps([dataclasses.astuple(death) for death in dying]),
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        },
    )
    return history(folder)


def assert_as_if_nobody_had_died(disturbed: History, undisturbed: History) -> None:
    assert (undisturbed.lives, disturbed.lives) == (1, 4)
    assert disturbed.resumed[-1] > 0
    for one in (undisturbed, disturbed):
        assert [sorted(ids) for ids in one.epochs] == [list(range(sum(UNEVEN)))] * EPOCHS
        assert one.steps == [STEPS, STEPS]
        assert one.states[0] == one.states[1]
    assert len({tuple(ids) for ids in undisturbed.epochs}) == EPOCHS  # each epoch has an order of its own
    assert disturbed.states == undisturbed.states
    assert len(disturbed.losses) == 2
    assert disturbed.losses == pytest.approx(undisturbed.losses, rel=0, abs=1e-6)


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("restarted_by_torchrun", []),
        ("restarted_by_torchrun", ["--distributed-checkpoint"]),
        ("restarted_lightning", []),
        ("restarted_lightning", ["--every-epoch"]),
        ("restarted_fabric", []),
        ("restarted_accelerate", []),
        ("restarted_accelerate", ["--every-epoch"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "-",
)
def test_a_training_whose_workers_die_ends_as_if_nobody_had(
    run: Run, numbered: Callable[..., str], tmp_path: Path, program: str, options: list[str]
) -> None:
    dying = deaths(f"{program} {options}", every=STEPS_PER_EPOCH if "--every-epoch" in options else 2)
    train = functools.partial(trained, run, program, numbered())
    undisturbed = train(tmp_path / "undisturbed", [], *options)
    disturbed = train(tmp_path / "disturbed", dying, *options)
    assert_as_if_nobody_had_died(disturbed, undisturbed)
    # In the middle of a later epoch, where one that counts from 0 in each process has another number than the state.
    assert any(step > STEPS_PER_EPOCH and step % STEPS_PER_EPOCH for step in disturbed.resumed) or options


@pytest.mark.timeout(600)  # five groups of workers, each half a minute on a machine that does nothing else
def test_workers_of_ray_train_that_die_end_as_if_nobody_had(
    run: Run, numbered: Callable[..., str], tmp_path: Path
) -> None:
    url = numbered()

    def train(name: str, dying: list[Death]) -> History:
        folder = tmp_path / name
        folder.mkdir()
        with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as rays:  # sockets want short paths
            run(
                ["python", "neighbours/torch/programs/restarted_ray_train.py", url, str(folder), rays],
                environment={
                    "DEATHS": json.dumps([dataclasses.astuple(death) for death in dying]),
                    "RAY_TRAIN_V2_ENABLED": "1",
                    "RAY_USAGE_STATS_ENABLED": "0",
                },
                seconds=300,
            )
        return history(folder)

    assert_as_if_nobody_had_died(train("disturbed", deaths("ray")), train("undisturbed", []))
