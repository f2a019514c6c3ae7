"""Tests of CPU time measurement: it counts this process and its descendants, and no other process."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

from benchmarks.bench.cpu import cpu_seconds

pytestmark = pytest.mark.slow

SPIN = "import time; began = time.process_time()\nwhile time.process_time() - began < 0.2: pass"
"""Program that uses 0.2 s of CPU time."""

SPIN_AND_STAY = f"{SPIN}\nprint('spun', flush=True)\nimport sys; sys.stdin.read()"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SPIN_AND_STAY!r}])"


def test_cpu_time_includes_ended_children() -> None:
    before = cpu_seconds()
    subprocess.run([sys.executable, "-c", SPIN], check=True)
    assert cpu_seconds() - before >= 0.2


def used_by_children() -> float:
    """Return the CPU time that the system counted for this process, its ended children and their descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + own.ru_utime + own.ru_stime


def test_cpu_time_counts_grandchildren_once() -> None:
    before, counted_before = cpu_seconds(), used_by_children()
    with subprocess.Popen(
        [sys.executable, "-c", IN_A_CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "spun\n"
        while_it_runs = cpu_seconds() - before
    assert while_it_runs >= 0.18  # 0.2 s, less the clock ticks of its parts
    # Within a few clock ticks of the system's own count; counting a grandchild twice would add 0.2 s.
    assert cpu_seconds() - before == pytest.approx(used_by_children() - counted_before, abs=0.1)
