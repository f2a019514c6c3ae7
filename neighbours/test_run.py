"""The fixture `run` fails a test whose program fails, hangs or leaves something: run here on programs made to."""

from __future__ import annotations

import sys

import pytest

from neighbours.conftest import Run


def test_what_a_program_prints_is_given(run: Run) -> None:
    assert run([sys.executable, "-c", "import petastore; print('it runs')"]) == "it runs\n"


def test_a_program_that_fails_fails_the_test_with_what_it_printed(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)ended with 1; it printed:.*the reason"):
        run([sys.executable, "-c", "raise SystemExit('the reason')"])


def test_a_program_that_hangs_is_ended(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"(?s)took longer than [\d.]+ s; .*waits now"):
        run(["sh", "-c", "echo waits now; exec sleep 60"], seconds=0.05)


def test_a_program_that_leaves_a_process_in_a_session_of_its_own_fails_the_test(run: Run) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"left \d+ "):
        run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '60'], start_new_session=True)"])
