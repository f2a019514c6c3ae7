"""Tests of the fixture `run`: a test fails if its program fails, hangs or leaves a process behind."""

from __future__ import annotations

import sys

import pytest

from neighbours.conftest import Run


def test_run_returns_the_output_of_a_program(run: Run) -> None:
    assert run([sys.executable, "-c", "import petastore; print('it runs')"]) == "it runs\n"


def test_run_fails_with_the_output_of_a_failed_program(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)ended with 1; it printed:.*the reason"):
        run([sys.executable, "-c", "raise SystemExit('the reason')"])


def test_run_kills_a_hanging_program(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)took longer than [\d.]+ s; .*waits now"):
        run(["sh", "-c", "echo waits now; exec sleep 60"], seconds=0.05)


def test_run_fails_when_a_program_leaves_a_process_behind(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"left \d+ "):
        run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"])
