"""Tests of Ctrl-C (KeyboardInterrupt): readers end at any point, with only one traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import petastore

_NET_S = 120

WHILE_A_THREAD_STARTS = """
import faulthandler, os, signal, sys, threading
from petastore import make_reader

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in programs of a shell's background
start = threading.Thread.start

def start_and_interrupt(self):
    start(self)
    if threading.current_thread() is threading.main_thread():
        threading.Thread.start = start
        os.kill(os.getpid(), signal.SIGINT)

faulthandler.dump_traceback_later(60, exit=True)
try:
    with make_reader(sys.argv[1], shuffle_rows=True, workers_count=3) as reader:
        threading.Thread.start = start_and_interrupt
        list(reader)
except KeyboardInterrupt:
    print("ended")
"""

IN_A_PROCESS_POOL = """
import signal, sys, time
from petastore import make_reader, TransformSpec

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in programs of a shell's background

def slow(row):
    time.sleep(0.02)
    return row

with make_reader(sys.argv[1], transform_spec=TransformSpec(slow), num_epochs=None, reader_pool_type="process",
                 workers_count=2) as reader:
    print("opened", flush=True)
    for row in reader:
        print("row", flush=True)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("interrupted") / "numbers"
    petastore.write_dataset(folder, {"id": np.arange(400)}, rows_per_row_group=20)
    return str(folder)


def test_ctrl_c_while_a_worker_thread_starts_ends_the_reader(url: str) -> None:
    program = [sys.executable, "-c", WHILE_A_THREAD_STARTS, url]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=_NET_S, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("ended\n", "", 0)


@pytest.mark.parametrize("awaited", ["opened", "row"])
def test_ctrl_c_with_a_process_pool_prints_one_traceback(url: str, tmp_path: Path, awaited: str) -> None:
    """Workers may be starting or in a call. The signal goes to all processes of the group, as in a terminal."""
    program = subprocess.Popen(
        [sys.executable, "-c", IN_A_PROCESS_POOL, url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )
    assert program.stdout is not None
    while program.stdout.readline().strip() != awaited:
        assert program.poll() is None
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=_NET_S)
    assert errors.count("Traceback") == 1
    assert errors.endswith("KeyboardInterrupt\n")
    assert "ignored" not in errors
    assert program.returncode == -signal.SIGINT
