"""Tests of the soak test itself: a short run kills ranks, and its checks detect wrong rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import soak

pytestmark = pytest.mark.slow


def test_killed_ranks_read_each_row_once_from_failing_storage(tmp_path: Path) -> None:
    soak.write(tmp_path / "data")
    assert soak.soak(tmp_path, seconds=8, seed=1) >= 1
    epochs, _ = soak.checked(tmp_path)
    assert epochs >= 1


def test_soak_detects_a_missing_row(tmp_path: Path) -> None:
    for rank in range(soak.RANKS):
        entries = [{"ids": list(range(1, soak.ROWS)) if rank == 0 else []}, {"over": True}]
        lines = "".join(json.dumps(entry) + "\n" for entry in entries)
        (tmp_path / f"rank-{rank}.jsonl").write_text(lines, encoding="utf-8")
    with pytest.raises(AssertionError, match="epoch 0 has 5,002 rows, 5,002 of them distinct"):
        soak.checked(tmp_path)
