"""Tests of a worker process: calls in order, errors at startup, being killed, end of its parent, CPU threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest

from petastore import Unischema, UnischemaField
from petastore.decoding.decode import Decoded
from petastore.transforming.transform import TransformSpec
from petastore.transforming.worker import Call, Failure, Function, Made, Setup, packed
from petastore.transforming.worker_process import WorkerProcess
from petastore.work.pools import available_cpus
from tests.pace import LONG

SCHEMA = Unischema("number", [UnischemaField("id", np.int64)])
CALL = Call(0, {"id": Decoded(np.arange(3), None)}, np.array([0, 3]))


def setup_of(func: Callable[[Any], Any]) -> Setup:
    return packed([Function(TransformSpec(func), SCHEMA, False)])


def test_worker_process_answers_calls_in_order() -> None:
    worker = WorkerProcess(0, of=2)
    assert worker.begin(setup_of(dict)) is None
    for slot in (0, 1, 0):
        worker.channel.send(slot, CALL)
    answers = [worker.channel.receive() for _ in range(3)]
    assert [slot for slot, _ in answers] == [0, 1, 0]
    for _, answer in answers:
        assert isinstance(answer, Made)
        np.testing.assert_array_equal(answer.columns["id"].values, [0, 1, 2])
        assert 0 < answer.seconds < LONG
    worker.end(grace_s=LONG)
    assert worker.how_it_ended() == "ended with exit code 0"


def test_object_that_a_worker_cannot_load_raises_before_the_first_call() -> None:
    worker = WorkerProcess(0, of=1)
    failure = worker.begin((b"no pickle", ()))
    assert isinstance(failure, Failure)
    assert "UnpicklingError" in failure.text
    worker.end()


def test_killed_worker_process_error_explains_causes() -> None:
    worker = WorkerProcess(3, of=4)
    assert worker.begin(setup_of(dict)) is None
    os.kill(int(str(worker).partition("pid ")[2].rstrip(")")), signal.SIGKILL)
    with pytest.raises(EOFError):
        worker.channel.receive()
    worker.end()
    assert str(worker).startswith("worker process 3 (pid ")
    assert worker.how_it_ended() == "was killed by signal 9 (SIGKILL), as the system does when memory runs out"


def test_killed_worker_process_is_detected_without_pidfd(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    worker = WorkerProcess(0, of=1)
    assert worker.begin(setup_of(dict)) is None
    worker.channel.send(0, Call(0, CALL.columns, CALL.offsets))
    assert isinstance(worker.channel.receive()[1], Made)
    os.kill(int(str(worker).partition("pid ")[2].rstrip(")")), signal.SIGKILL)
    with pytest.raises(EOFError):
        worker.channel.receive()
    worker.end()
    assert "SIGKILL" in worker.how_it_ended()


@pytest.mark.parametrize("has_descriptors", [True, False])
def test_worker_process_ends_with_its_parent(has_descriptors: bool) -> None:
    busy = (
        "import os, socket\n"
        f"if not {has_descriptors}: del os.pidfd_open\n"
        "from petastore.transforming import worker\n"
        "parent, (here, there) = os.getppid(), socket.socketpair()\n"
        "print(os.getpid(), flush=True)\n"
        "worker.main(here.detach(), parent)\n"  # `there` stays open, so the connection does not end
    )
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        assert psutil.wait_procs([worker], timeout=LONG)[1] == []


def test_worker_process_can_be_ended_repeatedly() -> None:
    worker = WorkerProcess(0, of=1)
    worker.end()
    worker.end()


def test_worker_processes_divide_cpu_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    worker = WorkerProcess(0, of=1000)
    assert worker.begin(setup_of(environment_of)) is None
    worker.channel.send(0, CALL)
    _, answer = worker.channel.receive()
    assert isinstance(answer, Made)
    assert answer.columns["id"].values.tolist() == [17, 17, 17]
    assert available_cpus() < 1000
    worker.end()


def environment_of(_: dict[str, object]) -> dict[str, int]:
    """Return the worker's number of OpenMP threads times 10, plus its number of MKL threads."""
    return {"id": 10 * int(os.environ["OMP_NUM_THREADS"]) + int(os.environ["MKL_NUM_THREADS"])}
