"""Tests of the training process: arguments and results, exceptions, signals, child processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from petastore.errors import WorkerError
from petastore.plan.request import Shard
from petastore.spark.training import LocalRows
from petastore.spark.training.trainer import Outcome, Trainer
from tests.pace import patience

ROWS = LocalRows("/nowhere", Shard(1, 2), 10, 6)


@pytest.fixture
def trainer(tmp_path: Path) -> Iterator[Trainer]:
    trainer = Trainer(str(tmp_path))
    yield trainer
    trainer.close()


def facts(rows: LocalRows) -> dict[str, Any]:
    print("not for the task")
    return {"rank": rows.shard.index, "said": os.environ["SAID"]}


def ends_itself(_: LocalRows) -> None:
    sys.exit("enough")


def is_killed(_: LocalRows) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dies_within_a_message(rows: LocalRows) -> None:
    (pipe,) = [fd for fd in range(3, 64) if is_socket(fd)]
    os.write(pipe, struct.pack("!i", 9) + b"half")
    is_killed(rows)


def is_socket(fd: int) -> bool:
    with contextlib.suppress(OSError):
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    return False


def leaves_a_child(_: LocalRows) -> int:
    return subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid


def test_train_fn_receives_rows_and_returns_json(trainer: Trainer, tmp_path: Path) -> None:
    folder = Path(trainer.folder())
    assert folder.parent == tmp_path
    assert trainer.train(ROWS, pickle.dumps(facts), {"SAID": "yes"}).value() == {"rank": 1, "said": "yes"}
    assert folder.exists()
    trainer.close()
    assert not folder.exists()


def test_train_fn_exception_is_returned_as_text(trainer: Trainer) -> None:
    trainer.folder()
    outcome = trainer.train(ROWS, pickle.dumps(ends_itself), {})
    assert outcome.problem is not None
    assert outcome.problem.strip().endswith("SystemExit: enough")


@pytest.mark.parametrize("train_fn", [is_killed, dies_within_a_message])
def test_killed_trainer_is_reported_with_its_signal(trainer: Trainer, train_fn: Any) -> None:
    trainer.folder()
    with pytest.raises(WorkerError, match="the training process was killed by SIGKILL"):
        trainer.train(ROWS, pickle.dumps(train_fn), {})


def test_closed_trainer_without_a_function_deletes_its_folder(trainer: Trainer, tmp_path: Path) -> None:
    trainer.close()
    assert list(tmp_path.iterdir()) == []


def test_child_processes_of_train_fn_end_with_it(trainer: Trainer) -> None:
    trainer.folder()
    child = psutil.Process(trainer.train(ROWS, pickle.dumps(leaves_a_child), {}).value())
    trainer.close()
    psutil.wait_procs([child], timeout=patience(10))
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("value", [None, 1, "text", [1.5, {"a": None}], b"model"])
def test_train_fn_results_round_trip(value: Any) -> None:
    assert Outcome.of(value).value() == value


def test_train_fn_unsupported_results_raise() -> None:
    with pytest.raises(
        TypeError, match="train_fn must return None, bytes, or numbers, text, lists and dicts of these, got set"
    ):
        Outcome.of({1})
