"""What a forked child does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from petastore import forks
from petastore.forks import of_thread
from tests.forked import forked
from tests.pace import LONG

A_TASK_S = 0.05

FOR_EVER_S = 1e6
"""For how long forks wait where the test hangs unless somebody wakes them before."""

_FORKS_WHILE_A_THREAD_IMPORTS = """
import os, sys, threading
import petastore.forks
sys.path.insert(0, sys.argv[1])
import meeting

thread = threading.Thread(target=lambda: __import__("slow"))
thread.start()
meeting.began.wait()
child = os.fork()
if child == 0:
    meeting.go_on = threading.Event()
    meeting.go_on.set()
    import slow
    os._exit(slow.value)
meeting.go_on.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sys.modules["slow"].value)
"""


def test_a_child_imports_what_a_thread_of_its_parent_was_importing(tmp_path: Path, repository: Path) -> None:
    (tmp_path / "meeting.py").write_text("import threading\nbegan, go_on = threading.Event(), threading.Event()\n")
    (tmp_path / "slow.py").write_text("import meeting\nmeeting.began.set()\nmeeting.go_on.wait()\nvalue = 7\n")
    done = subprocess.run(
        [sys.executable, "-c", _FORKS_WHILE_A_THREAD_IMPORTS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=LONG,
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert (done.stdout, done.returncode) == ("7 7\n", 0), done.stderr


def test_a_fork_waits_for_the_end_of_a_task_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MOMENT_S", FOR_EVER_S)
    began, order = threading.Event(), []

    def task() -> None:
        with of_thread.at_task:
            began.set()
            threading.Event().wait(A_TASK_S)
            order.append("ended")

    thread = threading.Thread(target=task)
    thread.start()
    assert began.wait(LONG)
    child = forked(lambda: order == ["ended"] or os._exit(7))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_goes_on_without_a_task_that_does_not_end_and_the_child_runs_others() -> None:
    began, go_on = threading.Event(), threading.Event()

    def task() -> None:
        with of_thread.at_task:
            began.set()
            go_on.wait()

    def run_another() -> None:
        with of_thread.at_task:
            pass

    thread = threading.Thread(target=task)
    thread.start()
    assert began.wait(LONG)
    child = forked(run_another)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run_another()  # here, too
    go_on.set()
    thread.join()


def test_a_task_that_forks_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MOMENT_S", FOR_EVER_S)
    with of_thread.at_task:
        child = forked(lambda: None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
