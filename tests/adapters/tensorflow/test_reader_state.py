"""Tests of `ReaderState` in TensorFlow checkpoints: a killed process resumes after its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.errors import InvalidArgumentError
from tests.warm_interpreters import WarmInterpreter

pytestmark = [pytest.mark.tf, pytest.mark.slow]

ROWS = 103

PROGRAM = """
import os, sys
import tensorflow as tf
from petastore import make_reader
from petastore.adapters.tensorflow import ReaderState, make_tf_dataset

die_after = int(sys.argv[1])
with make_reader("ids", shuffle_rows=True, seed=7, num_epochs=2) as reader:
    total = tf.Variable(0, dtype=tf.int64)
    checkpoint = tf.train.Checkpoint(total=total, place=ReaderState(reader))
    manager = tf.train.CheckpointManager(checkpoint, "checkpoints", max_to_keep=2)
    batches = make_tf_dataset(reader, batch_size=10).prefetch(4)
    checkpoint.restore(manager.latest_checkpoint)
    for step, batch in enumerate(batches, start=1):
        print(*batch["id"].numpy(), flush=True)
        total.assign_add(tf.reduce_sum(batch["id"]))
        checkpoint.place.batches += 1
        if step % 3 == 0:
            manager.save()
        if step == die_after:
            os._exit(17)
print("total", int(total))
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(tmp_path / "ids"), schema, [{"id": i} for i in range(ROWS)], rows_per_row_group=13)
    return str(tmp_path / "ids")


def printed(interpreter: WarmInterpreter, folder: Path, die_after: int) -> list[str]:
    """Run the program, and return its lines; the last one is the batch at which it died."""
    ran = interpreter.run(PROGRAM, die_after, cwd=folder)
    assert ran.returncode == (17 if die_after else 0), ran.stderr
    return ran.stdout.splitlines()


@pytest.mark.usefixtures("url")
def test_killed_process_resumes_after_its_last_checkpoint(tmp_path: Path, warm_tensorflow: WarmInterpreter) -> None:
    first = printed(warm_tensorflow, tmp_path, 5)
    second = printed(warm_tensorflow, tmp_path, 11)
    *third, total = printed(warm_tensorflow, tmp_path, 0)
    committed = [*first[:3], *second[:9], *third]
    assert len(committed) == 22
    for epoch in range(2):
        batches = committed[11 * epoch : 11 * epoch + 11]
        assert sorted(int(i) for batch in batches for i in batch.split()) == list(range(ROWS))
    assert total == f"total {2 * sum(range(ROWS))}"


def test_restoring_the_state_of_another_dataset_raises(url: str, tmp_path: Path) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import ReaderState, make_tf_dataset

    other = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(tmp_path / "other"), other, [{"id": i} for i in range(7)])
    with petastore.make_reader(url, seed=1) as reader:
        place = ReaderState(reader)
        for _ in make_tf_dataset(reader, batch_size=10).take(2):
            place.batches += 1
        path = tf.train.Checkpoint(place=place).write(str(tmp_path / "checkpoint"))
        place.batches = 50
        with pytest.raises(InvalidArgumentError, match="must be from 1 to 3, the batches of this iteration, got 50"):
            tf.train.Checkpoint(place=place).write(str(tmp_path / "checkpoint"))
    with petastore.make_reader(str(tmp_path / "other"), seed=1) as reader:
        checkpoint: Any = tf.train.Checkpoint(place=ReaderState(reader))
        with pytest.raises(InvalidArgumentError, match="the state must belong to the data that is read"):
            checkpoint.read(path)
