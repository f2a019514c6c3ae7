"""Processes that share a scan look at each row group once between them, and wait for nobody who is gone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import col, open_dataset, select_rows
from petastore.dataset import Dataset
from petastore.plan import ReadUnit
from petastore.selecting.remembered import RememberedSelections, selection_of
from petastore.selecting.shared_scan import SharedScan
from tests.pace import patience

ROWS = np.full(40, 2)
GROUPS = np.arange(3, 40)


def scan(folder: Path, *, patience_s: float = 60.0) -> SharedScan:
    return SharedScan(folder / "k.parts", "k", GROUPS, ROWS, done=folder / "k.selection", patience_s=patience_s)


def answer(share: SharedScan, part: int) -> dict[int, Any]:
    return {group: group % 2 == 0 for group in share.groups(part)}


def gone() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_all_row_groups_are_in_some_part(tmp_path: Path) -> None:
    share = scan(tmp_path)
    assert sorted(group for part in range(len(share)) for group in share.groups(part)) == GROUPS.tolist()
    assert sorted(share.claims()) == list(range(len(share)))
    empty = SharedScan(tmp_path / "e.parts", "e", GROUPS[:0], ROWS, done=tmp_path / "e.selection")
    assert (len(empty), list(empty.claims())) == (0, [])


def test_a_part_is_claimed_once(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    claims, others = ours.claims(), theirs.claims()
    taken = [next(claims), next(others), next(claims)]
    assert sorted(taken) == [0, 1, 2]
    assert list(claims) == list(others) == []


def test_what_one_publishes_the_other_is_given(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    for part in ours.claims():
        ours.publish(part, answer(ours, part))
    assert list(theirs.claims()) == []
    for part in range(len(theirs)):
        assert theirs.wait(part) == answer(theirs, part)


def test_who_waits_is_given_what_is_published_meanwhile(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    (first, *_) = ours.claims()
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(theirs.wait(first)))
    waiting.start()
    ours.publish(first, answer(ours, first))
    waiting.join(30)
    assert found == [answer(ours, first)]


def test_nobody_waits_for_a_part_that_is_given_up(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    parts = list(ours.claims())
    ours.publish(parts[0], answer(ours, parts[0]))
    ours.give_up()
    ours.give_up()
    assert theirs.wait(parts[0]) is not None
    assert theirs.wait(parts[1]) is None
    assert sorted(theirs.claims()) == sorted(parts[1:])


def test_nobody_waits_for_a_process_that_is_gone(tmp_path: Path) -> None:
    share = scan(tmp_path)
    (tmp_path / "k.parts").mkdir()
    for part in range(len(share)):
        (tmp_path / "k.parts" / f"{part}.claim").write_text(f"{socket.gethostname()} {gone()}")
    assert share.wait(0) is None
    assert sorted(share.claims()) == list(range(len(share)))  # taken over
    assert (tmp_path / "k.parts" / "0.claim").read_text() == f"{socket.gethostname()} {os.getpid()}"


def test_a_host_that_shows_no_life_costs_patience_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share = scan(tmp_path, patience_s=0.3)
    (tmp_path / "k.parts").mkdir()
    for part in range(len(share)):
        (tmp_path / "k.parts" / f"{part}.claim").write_text("elsewhere 1")
    assert list(share.claims()) == []
    assert share.wait(0) is None
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    assert [share.wait(part) for part in range(1, len(share))] == [None] * (len(share) - 1)
    assert slept == []  # all claims were watched while the first was waited for


def test_nobody_waits_or_claims_when_all_is_answered(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    (first, *_) = ours.claims()
    (tmp_path / "k.selection").touch()
    assert theirs.wait(first) is None
    assert list(scan(tmp_path).claims()) == []


def test_a_damaged_answer_is_no_answer(tmp_path: Path) -> None:
    ours, theirs = scan(tmp_path), scan(tmp_path)
    (first, *_) = ours.claims()
    ours.publish(first, answer(ours, first))
    (tmp_path / "k.parts" / f"{first}.selection").write_bytes(b"nonsense")
    ours.give_up()
    (tmp_path / "k.parts" / f"{first}.claim").unlink()
    assert theirs.wait(first) is None


def test_without_a_directory_everything_is_ours(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "k.parts").write_text("in the way")
    share = scan(tmp_path)
    assert sorted(share.claims()) == list(range(len(share)))
    share.publish(0, answer(share, 0))
    share.show_life(0)
    share.give_up()
    assert "not shared" in caplog.text


@pytest.fixture
def url(tmp_path: Path) -> str:
    """160 row groups of 5 rows whose statistics decide nothing about `x`."""
    x = np.tile([0, 9, 3, 5, 7], 160)
    pq.write_table(pa.table({"id": np.arange(800), "x": x}), tmp_path / "x.parquet", row_group_size=5)
    return str(tmp_path / "x.parquet")


RANK = """
import json, sys
from petastore import col, open_dataset, select_rows
from petastore.dataset import Dataset
from petastore.selecting.shared_scan import SharedScan
SharedScan.__init__.__kwdefaults__["patience_s"] = 1e6  # or a rank that gets no processor is done without
read, reads = Dataset.read, []
def noted(self, unit):
    reads.append(unit.group)
    return read(self, unit)
Dataset.read = noted
dataset = open_dataset(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
selection = select_rows(dataset, filters=col("x") == 5, filter_cache=sys.argv[2])
print(json.dumps({"fingerprint": selection.fingerprint, "reads": reads}), flush=True)
"""


# Several threads of a rank may come here at once: the line is written whole, and by one of them.
HOLD = """
import os, threading
said = threading.Lock()
def hold():
    if said.acquire(blocking=False):
        os.write(1, b"held\\n")
    threading.Event().wait()
"""


def start_rank(url: str, cache: Path, script: str = RANK) -> subprocess.Popen[str]:
    rank = subprocess.Popen(
        [sys.executable, "-c", script, url, str(cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == "ready\n"
    return rank


def go(rank: subprocess.Popen[str]) -> None:
    assert rank.stdin is not None
    rank.stdin.write("go\n")
    rank.stdin.flush()


def test_ranks_divide_the_row_groups_between_them(url: str, tmp_path: Path) -> None:
    ranks = [start_rank(url, tmp_path / "cache") for _ in range(3)]
    for rank in ranks:
        go(rank)
    found = [json.loads(rank.communicate(timeout=patience(100))[0]) for rank in ranks]
    alone = select_rows(open_dataset(url), filters=col("x") == 5, filter_cache=False)
    assert alone is not None
    assert {rank["fingerprint"] for rank in found} == {alone.fingerprint}
    assert sorted(group for rank in found for group in rank["reads"]) == list(range(160))
    assert sorted(path.suffix for path in (tmp_path / "cache").iterdir()) == [".selection"]


def test_a_rank_that_is_killed_is_done_without(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies with a part claimed; what it had published is used, the rest is looked at here."""
    cache = tmp_path / "cache"
    stop = "reads.append(unit.group)\n    if len(reads) > 40: hold()"
    rank = start_rank(url, cache, HOLD + RANK.replace("reads.append(unit.group)", stop))
    go(rank)
    assert rank.stdout is not None
    assert rank.stdout.readline() == "held\n"
    rank.send_signal(signal.SIGKILL)
    rank.communicate()
    reads = []
    read = Dataset.read

    def noted(self: Dataset, unit: ReadUnit) -> Any:
        reads.append(unit.group)
        return read(self, unit)

    monkeypatch.setattr(Dataset, "read", noted)
    found = select_rows(open_dataset(url), filters=col("x") == 5, filter_cache=cache)
    assert found is not None
    assert found == select_rows(open_dataset(url), filters=col("x") == 5, filter_cache=False)
    looked_at_here = reads[:-160]
    assert 0 < len(looked_at_here) < 160


def test_a_scan_that_fails_lets_go_of_its_claims(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Dataset, unit: ReadUnit) -> Any:
        raise OSError("on purpose")

    with monkeypatch.context() as patched:
        patched.setattr(Dataset, "read", fails)
        with pytest.raises(OSError, match="on purpose"):
            select_rows(open_dataset(url), filters=col("x") == 5, filter_cache=tmp_path / "cache")
    assert list((tmp_path / "cache").rglob("*.claim")) == []
    found = select_rows(open_dataset(url), filters=col("x") == 5, filter_cache=tmp_path / "cache")
    assert found is not None
    assert found.counts.sum() == 160


def test_who_comes_last_is_given_the_whole(tmp_path: Path) -> None:
    """The others finished while we claimed nothing: the whole answer is there, and the parts are gone."""
    memory = RememberedSelections(tmp_path)
    theirs, ours = memory.share("k", GROUPS, ROWS), memory.share("k", GROUPS, ROWS)
    kept: dict[int, Any] = {}
    for part in theirs.claims():
        kept |= answer(theirs, part)
        theirs.publish(part, answer(theirs, part))
    memory.save("k", selection_of(kept, ROWS), ROWS)
    assert list(ours.claims()) == []
    assert ours.wait(0) is None
    assert memory.load("k", ROWS) == selection_of(kept, ROWS)
