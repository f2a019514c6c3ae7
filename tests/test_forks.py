"""Tests of forks while threads run: no deadlock in the child on locks, imports or running tasks."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from petastore import forks
from petastore.forks import at_task
from tests.forked import forked
from tests.pace import LONG

A_TASK_S = 0.05

FOR_EVER_S = 1e6
"""Seconds that a fork waits for a running task: so long that a missing wake-up makes the test hang."""

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


def test_forked_child_imports_module_that_a_parent_thread_was_importing(tmp_path: Path, repository: Path) -> None:
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


def test_fork_waits_for_a_task_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MOMENT_S", FOR_EVER_S)
    began, order = threading.Event(), []

    def task() -> None:
        with at_task():
            began.set()
            threading.Event().wait(A_TASK_S)
            order.append("ended")

    thread = threading.Thread(target=task)
    thread.start()
    assert began.wait(LONG)
    child = forked(lambda: order == ["ended"] or os._exit(7))
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_fork_continues_after_a_timeout_of_a_running_task() -> None:
    began, go_on = threading.Event(), threading.Event()

    def task() -> None:
        with at_task():
            began.set()
            go_on.wait()

    def run_another() -> None:
        with at_task():
            pass

    thread = threading.Thread(target=task)
    thread.start()
    assert began.wait(LONG)
    child = forked(run_another)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    run_another()  # the parent also starts further tasks
    go_on.set()
    thread.join()


def test_task_that_forks_does_not_wait_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "MOMENT_S", FOR_EVER_S)
    with at_task():
        child = forked(lambda: None)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


LOCKS_OF_ONE_PROCESS = {
    "forks._OfTasks": "is what makes the others anew",
    "spark.settings._Turns": "belongs to Spark's driver, whose JVM no child has",
    "spark.writing.task_progress._Told": "belongs to Spark's driver, whose JVM no child has",
    "transforming.processes.TransformProcesses": "has one for each span, whose tasks a forked child has forgotten",
    "transforming.processes._WorkerGroup": "knows its process, and does nothing in another one",
    "work.futures._Job": "is of tasks, which a forked child has forgotten",
}
"""Classes whose locks are not recreated in a forked child, and why that is correct."""


def test_class_with_a_lock_has_a_fork_handler(repository: Path) -> None:
    """A lock that another thread held during the fork is never released in the child, which would be a deadlock."""
    without = set()
    for path in (repository / "petastore").rglob("*.py"):
        module = ".".join(path.relative_to(repository / "petastore").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ClassDef):
                continue
            made = {ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call)}
            has_handler = any(isinstance(each, ast.FunctionDef) and each.name == "make_anew" for each in node.body)
            if made & {"threading.Lock", "threading.RLock", "threading.Condition"} and not has_handler:
                without.add(f"{module}.{node.name}")
    assert without == set(LOCKS_OF_ONE_PROCESS)
