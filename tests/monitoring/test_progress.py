"""Tests of progress output: a bar on a terminal, lines in other streams, on rank 0 only."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.errors import InvalidArgumentError
from petastore.monitoring.progress import ProgressDisplay, progress_line, progress_shown
from petastore.writers.copying import copy_cells


@pytest.mark.parametrize(("seconds", "left"), [(10, "10 s"), (60, "1 min 0 s"), (4000, "1 h 6 min")])
def test_progress_line_shows_the_remaining_time(seconds: float, left: str) -> None:
    assert progress_line(50, 100, "rows", seconds=seconds).endswith(f", {left} left")


class Terminal(io.StringIO):
    """In-memory stream that reports to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_bar_shows_count_percent_and_note_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with ProgressDisplay("reading", "rows", 10, stream=stream, bar_s=0.0) as display:
        for done in range(1, 11):
            display.update(done, note="waited 3 % of the time")
    assert "reading" in stream.getvalue()
    assert "10 of 10 rows (100 %)" in stream.getvalue()
    assert "waited 3 % of the time" in stream.getvalue()


def test_progress_prints_lines_instead_of_a_bar_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream = Terminal()
    with ProgressDisplay("reading", "rows", 10, stream=stream, line_s=0.0) as display:
        display.update(5)
    assert stream.getvalue().startswith("reading: 5 of 10 rows (50 %)")


def test_progress_prints_nothing_when_work_is_short() -> None:
    stream = io.StringIO()
    with ProgressDisplay("reading", "rows", 10, stream=stream) as display:
        display.update(10)
    assert stream.getvalue() == ""


def test_progress_must_be_a_bool_or_a_function() -> None:
    wrong = progress_shown("yes", "writing", "rows")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="progress must be True, False or a function, got 'yes'"), wrong:
        pass
    for nothing in (None, False):
        with progress_shown(nothing, "writing", "rows") as show:
            assert show is None


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print a progress line at every update."""
    defaults: Any = ProgressDisplay.__init__.__kwdefaults__
    monkeypatch.setattr(ProgressDisplay.__init__, "__kwdefaults__", {**defaults, "line_s": 0.0})


@pytest.mark.usefixtures("lines")
def test_write_copy_verify_and_read_print_progress_in_the_same_format(tmp_path: Path, capsys: Any) -> None:
    url = str(tmp_path / "x")
    petastore.write_dataset(url, {"x": np.arange(100)}, rows_per_row_group=10, progress=True)
    copy_cells(url, str(tmp_path / "copy"), progress=True)
    petastore.verify(url, progress=True)
    with petastore.make_reader(url, num_epochs=2, progress=True) as reader:
        assert len(list(reader)) == 200
        assert len(list(reader)) == 200
    with petastore.make_reader(url, cur_shard=1, shard_count=2, progress=True) as reader:
        assert len(list(reader)) == 50
    shown = capsys.readouterr()
    last = {line.partition(":")[0]: line for line in shown.err.splitlines()}
    assert "writing: 100 of 100 rows (100 %)" in last["writing"]
    assert "copying: 100 of 100 rows (100 %)" in last["copying"]
    assert "verifying: 10 of 10 row groups (100 %)" in last["verifying"]
    assert "reading: 200 of 200 rows (100 %)" in last["reading"]
    assert "of the time" in last["reading"]
    assert sum("200 of 200 rows" in line for line in shown.err.splitlines()) >= 2
    assert "of 50 rows" not in shown.err
    assert shown.out == ""


def test_reader_progress_must_be_a_bool(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="progress must be one of True, False"):
        petastore.make_reader(tmp_path, progress="x")  # type: ignore[arg-type]
