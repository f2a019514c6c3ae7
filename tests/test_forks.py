"""What a forked child does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pace import patience

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
        timeout=patience(60),
        env={**os.environ, "PYTHONPATH": str(repository)},
    )
    assert (done.stdout, done.returncode) == ("7 7\n", 0), done.stderr


_FORKS_WITH_ARROW = """
import os, sys, threading
import pyarrow as pa
import petastore.forks

def backend_in_child():
    end, here = os.pipe()
    if os.fork() == 0:
        os.write(here, pa.default_memory_pool().backend_name.encode())
        os._exit(pa.array([1, 2]).sum().as_py() - 3)
    assert os.wait()[1] == 0
    return os.read(end, 20).decode()

pa.set_memory_pool(getattr(pa, sys.argv[1] + "_memory_pool")())
ended = threading.Event()
thread = threading.Thread(target=ended.wait)
print(backend_in_child())
thread.start()
print(backend_in_child(), pa.default_memory_pool().backend_name)
ended.set()
thread.join()
print(backend_in_child())
"""


@pytest.mark.parametrize("pool", pa.supported_memory_backends())
def test_a_child_does_not_allocate_where_threads_of_its_parent_may_hold_a_lock(pool: str) -> None:
    command = [sys.executable, "-c", _FORKS_WITH_ARROW, pool]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=True)
    others = [other for other in ("jemalloc", "system") if other in pa.supported_memory_backends()]
    in_company = others[0] if pool == "mimalloc" else pool
    assert done.stdout.split("\n") == [pool, f"{in_company} {pool}", pool, ""]
