"""Tests of two Horovod ranks with TensorFlow: exact rows, equal steps, and equal weights on both."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from neighbours.conftest import UNEVEN, Run

EPOCHS = 2
BATCH_SIZE = 8
HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2"]


def trained(way: str, url: str, run: Run) -> list[dict[str, Any]]:
    worker = ["python", "-m", "neighbours.horovod.tensorflow_worker", url, way, str(EPOCHS), str(BATCH_SIZE)]
    printed = run([*HOROVODRUN, *worker])
    (told,) = re.findall(r"TOLD (\[.*\])", printed)
    return list(json.loads(told))


@pytest.mark.slow
def test_gradient_tape_ranks_read_each_row_once_and_keep_equal_weights(run: Run, numbered: Callable[..., str]) -> None:
    first, second = trained("tape", numbered(), run)
    assert sorted(first["ids"] + second["ids"]) == sorted(EPOCHS * list(range(sum(UNEVEN))))
    assert first["steps"] == second["steps"] == EPOCHS * -(-sum(UNEVEN) // (2 * BATCH_SIZE))
    assert first["weights"] == second["weights"]


@pytest.mark.slow
def test_horovod_optimizer_does_not_average_in_keras_3_fit(run: Run, numbered: Callable[..., str]) -> None:
    """The reason why the page says to use a tape; Horovod gives no warning."""
    first, second = trained("fit", numbered(), run)
    assert first["steps"] == second["steps"]
    assert first["weights"] != second["weights"]
