"""File systems of fsspec are asked without Arrow in between, and what is asked is answered as Arrow would."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import fsspec
from pyarrow import fs

from petastore.storage.files.fsspec_handler import Files, Handler

HANGS = """
import threading, time
from fsspec.spec import AbstractFileSystem
from petastore.storage.files.fsspec_handler import Files, Handler

asked = threading.Event()

class Hangs(AbstractFileSystem):
    def info(self, path, **_):
        asked.set()
        while True:
            time.sleep(0.001)

threading.Thread(target=Files(Handler(Hangs())).get_file_info, args=("x",), daemon=True).start()
asked.wait()
"""


def test_a_process_ends_well_while_a_request_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def told(found: Any) -> Any:
    return [told(one) for one in found] if isinstance(found, list) else (found.path, found.type, found.size)


def test_answers_are_those_that_arrow_gives() -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/asked/day=1/a", b"abc")
    ours, arrows = Files(Handler(store)), fs.PyFileSystem(Handler(store))
    try:
        for asked in (
            "/asked", "/asked/day=1/a", "/asked/nothing", ["/asked", "/asked/nothing"],
            fs.FileSelector("/asked", recursive=True), fs.FileSelector("/nowhere", allow_not_found=True),
        ):  # fmt: skip
            assert told(ours.get_file_info(asked)) == told(arrows.get_file_info(asked))
        again = pickle.loads(pickle.dumps(ours))  # noqa: S301 - our own
        assert type(again) is Files
        assert again.get_file_info("/asked/day=1/a").size == 3
    finally:
        store.rm("/asked", recursive=True)
