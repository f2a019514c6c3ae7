"""Tests of fork while a thread reads a row group for windows: the child reads its windows, too."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField
from tests.readers.hanging import HangingFileSystem


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_windows_are_read_in_a_child_forked_during_a_read(tmp_path: Path) -> None:
    rows = [{"time": number} for number in range(400)]
    schema = Unischema("t", [UnischemaField("time", "int64")])
    petastore.write_dataset(tmp_path / "d", schema, rows, rows_per_row_group=20, rows_per_file=20)
    windows, storage = NGram({0: ["time"], 1: ["time"]}, 1, "time"), HangingFileSystem()
    with petastore.make_reader(
        tmp_path / "d", windows, shuffle_row_groups=False, workers_count=2, num_epochs=None, filesystem=storage
    ) as reader:
        storage.at = "read"
        thread = threading.Thread(target=lambda: [next(reader) for _ in range(100)], daemon=True)
        thread.start()
        assert storage.hangs.wait(60)
        child = os.fork()
        storage.at = None
        if child == 0:
            code = 1
            try:
                signal.alarm(60)  # a child that hangs exits with -14
                reader.reset()
                code = 0 if next(reader)[0].time == 0 else 2
            finally:
                os._exit(code)
        storage.answer.set()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        thread.join()
