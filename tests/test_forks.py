"""What a forked child does not wait for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
