"""Tests of a disk cache that several processes share, some of which are killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cache.processes import LIMIT, PROCESSES
from tests.pace import patience


def outcome_of(program: str, folder: Path, repository: Path) -> dict[str, Any]:
    """Run a program of `tests.cache.processes`, and return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.cache.processes", program, str(folder)],
        capture_output=True,
        text=True,
        timeout=patience(300),
        cwd=repository,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return dict(json.loads(done.stdout))


def test_concurrent_processes_fetch_an_entry_once(tmp_path: Path, repository: Path) -> None:
    assert outcome_of("cold", tmp_path, repository) == {"fetched": True, "times": 40}


def test_concurrent_writers_never_exceed_the_limit(tmp_path: Path, repository: Path) -> None:
    outcome = outcome_of("writers", tmp_path, repository)
    assert outcome["samples"] == 7 * PROCESSES
    assert outcome["most"] <= LIMIT


@pytest.mark.timeout(240)
def test_cache_keeps_limit_and_bytes_when_a_writer_is_killed_at_any_call(tmp_path: Path, repository: Path) -> None:
    outcome = outcome_of("killed", tmp_path, repository)
    assert outcome.pop("most") <= LIMIT
    assert outcome == {"wrong": 0, "left": 0, "ended": 0}


def test_access_order_announced_by_a_killed_reader_is_ignored(tmp_path: Path, repository: Path) -> None:
    outcome = outcome_of("dead", tmp_path, repository)
    assert outcome == {"living": 1, "kept": 12, "after": 0, "left": 0}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_cache_keeps_its_limit_and_contents_when_processes_act_at_random(tmp_path: Path, repository: Path) -> None:
    outcome = outcome_of("anything", tmp_path, repository)
    assert outcome.pop("most") <= LIMIT
    assert outcome == {"left": 0, "lost": 0}


def test_cache_bypasses_entries_above_the_file_size_limit_of_the_system(tmp_path: Path, repository: Path) -> None:
    outcome = outcome_of("full", tmp_path, repository)
    assert outcome == {"right": True, "kept": True, "bypassed": 3, "left": 0, "told": ["CacheBypassWarning"]}
