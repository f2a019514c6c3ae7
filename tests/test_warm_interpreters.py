"""Tests of warm interpreters: a forked program has arguments, streams, exit code and signals as with `python -c`."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm_interpreters import WarmInterpreter, run_together


@pytest.fixture(scope="module")
def warm_json() -> Iterator[WarmInterpreter]:
    with contextlib.closing(WarmInterpreter("json")) as interpreter:
        yield interpreter


def test_forked_program_has_arguments_environment_and_folder(warm_json: WarmInterpreter, tmp_path: Path) -> None:
    program = "import os, sys; print(__name__, sys.argv, os.environ['FRUIT'], os.getcwd(), sys.stdin.read(), sep='|')"
    ran = warm_json.run(program, 1, tmp_path, env={"FRUIT": "plum"}, cwd=tmp_path)
    assert ran.stdout == f"__main__|['-c', '1', '{tmp_path}']|plum|{tmp_path}|\n"
    assert (ran.returncode, ran.stderr) == (0, "")


def test_forked_program_finds_the_modules_imported_already(warm_json: WarmInterpreter) -> None:
    assert warm_json.run("import sys; print('json' in sys.modules, 'numpy' in sys.modules)").stdout == "True False\n"


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("import os; os._exit(3)", 3, ""),
        ("import os; os.kill(os.getpid(), 9)", -9, ""),
        ("1 / 0", 1, "ZeroDivisionError: division by zero\n"),
        ("import atexit, sys; atexit.register(print, 'end', file=sys.stderr)", 0, "end\n"),
    ],
)
def test_forked_program_exit_code_is_reported(warm_json: WarmInterpreter, program: str, code: int, said: str) -> None:
    ran = warm_json.run(program)
    assert ran.returncode == code
    assert ran.stderr.endswith(said)
    assert bool(ran.stderr) is bool(said)


def test_forked_program_can_be_written_to_and_killed(warm_json: WarmInterpreter) -> None:
    with warm_json.start("print(input()[::-1], flush=True); input()") as program:
        program.stdin.write("desserts\n")
        program.stdin.flush()
        assert program.stdout.readline() == "stressed\n"
        with pytest.raises(subprocess.TimeoutExpired):
            program.wait(0.01)
        program.kill()
        assert program.wait() == -signal.SIGKILL
    assert program.communicate() == ("", "")


def test_forked_programs_run_together_and_share_descriptors(warm_json: WarmInterpreter) -> None:
    """Each program waits for a message of the other one, through a socket with the same descriptor number as here."""
    program = "import os, sys; end = int(sys.argv[1]); os.write(end, b'x'); print(os.read(end, 1).decode())"
    pair = socket.socketpair()
    programs = [warm_json.start(program, end.fileno(), pass_fds=[end.fileno()]) for end in pair]
    for end in pair:
        end.close()
    assert run_together(programs) == [("x\n", "")] * 2


def test_forked_program_starts_processes_of_its_own(warm_json: WarmInterpreter) -> None:
    program = """
import multiprocessing, operator
with multiprocessing.get_context("spawn").Pool(1) as pool:
    print(pool.apply(operator.add, (1, 2)))
    pool.close()
    pool.join()
"""
    assert warm_json.run(program).stdout == "3\n"


def test_module_that_cannot_be_imported_is_named() -> None:
    with (
        contextlib.closing(WarmInterpreter("no_such_module")) as interpreter,
        pytest.raises(AssertionError, match="no_such_module"),
    ):
        interpreter.start("pass")


def test_forked_programs_have_different_random_numbers(warm_json: WarmInterpreter) -> None:
    first, second = (warm_json.run("import random; print(random.random())").stdout for _ in range(2))
    assert first != second
    assert os.getpid() != int(warm_json.run("import os; print(os.getpid())").stdout)
