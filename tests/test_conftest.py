"""Tests of the rules for all tests: timeouts, leaked threads and warnings fail a test of a pytest subprocess."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
import threading

def test_hangs():
    threading.Thread(target=wait_in_a_thread, name="the-other-one", daemon=True).start()
    threading.Event().wait()

def wait_in_a_thread():
    threading.Event().wait()
"""

FORGETS = """
import threading
import pytest
from tests import leaks

leaks.PATIENCE_SECONDS = 0

def test_forgets_a_thread():
    threading.Thread(target=threading.Event().wait, name="the-forgotten-one", daemon=True).start()

@pytest.mark.leaves_running("on purpose")
def test_is_let_go():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""

WARNS = """
import warnings

def test_warns():
    warnings.warn("careful")
"""


def run(test: str, repository: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    path = folder / "test_made_to_fail.py"
    path.write_text(test, encoding="utf-8")
    ours = ["-c", str(repository / "pyproject.toml"), "--rootdir", str(repository), "-p", "tests.conftest"]
    command = [sys.executable, "-m", "pytest", *ours, "-p", "no:cacheprovider", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=repository)


def test_hanging_test_is_ended_with_the_stacks_of_all_threads(repository: Path, tmp_path: Path) -> None:
    ran = run(HANGS, repository, tmp_path, "--timeout", "1")
    assert ran.returncode != 0
    shown = ran.stdout + ran.stderr
    assert "the-other-one" in shown
    assert "in wait_in_a_thread" in shown
    assert "in test_hangs" in shown


@pytest.mark.slow
def test_leaked_thread_fails_its_test(repository: Path, tmp_path: Path) -> None:
    ran = run(FORGETS, repository, tmp_path)
    assert "2 passed, 1 error" in ran.stdout
    assert "the test left something running:\nthread the-forgotten-one" in ran.stdout


def test_warning_fails_a_test(repository: Path, tmp_path: Path) -> None:
    assert "UserWarning: careful" in run(WARNS, repository, tmp_path).stdout


def test_objects_from_test_collection_are_excluded_from_garbage_collection() -> None:
    assert gc.get_freeze_count() > 10_000
