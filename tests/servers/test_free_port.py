"""Tests of starting servers: a server whose port is taken is restarted with another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.pace import patience

PROGRAM = """
import sys
from pathlib import Path
from tests.servers.free_port import serving_until_input_ends

SERVER = '''
import socket, sys, time
from pathlib import Path
marker, port = Path(sys.argv[1]), int(sys.argv[2])
if not marker.exists():
    marker.touch()
    raise SystemExit("address already in use")
with socket.create_server(("127.0.0.1", port)):
    time.sleep(600)
'''

ports = []

def command(port):
    ports.append(port)
    return [sys.executable, "-c", SERVER, sys.argv[1], str(port)]

with serving_until_input_ends(command) as port:
    print(ports.index(port), len(ports))
"""


def test_server_is_started_again_when_its_port_was_taken(tmp_path: Path, repository: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "marker")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=patience(60),
        cwd=repository,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 2\n", "address already in use\n")
