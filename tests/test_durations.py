"""Tests of the durations plugin: long files start first, and the summary adds up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.durations import Durations, sort_at_random, sort_by_duration

ROOT = Path("/clone")


@dataclass
class Item:
    path: Path


@dataclass
class Report:
    nodeid: str
    duration: float


class Terminal:
    """Terminal reporter that collects the lines of the summary."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def section(self, title: str) -> None:
        self.lines.append(title)

    def write_line(self, line: str) -> None:
        self.lines.append(line.strip())


def test_sort_by_duration_moves_whole_files_longest_first() -> None:
    items: Any = [Item(ROOT / name) for name in ("quick.py", "long.py", "new.py", "long.py", "quick.py")]
    sort_by_duration(items, {"quick.py": 1.0, "long.py": 90.0}, ROOT)
    assert [item.path.name for item in items] == ["long.py", "long.py", "new.py", "quick.py", "quick.py"]


def test_sort_at_random_keeps_the_tests_of_a_file_together() -> None:
    def order(seed: str) -> list[str]:
        items: Any = [Item(ROOT / name) for name in "abcdeabcde"]
        sort_at_random(items, seed, ROOT)
        return [item.path.name for item in items]

    assert sorted(order("1")) == sorted("abcdeabcde")
    assert order("1")[::2] == order("1")[1::2]
    assert order("1") == order("1")
    assert len({tuple(order(str(seed))) for seed in range(20)}) > 10


def test_durations_summary_adds_up_seconds_by_file_and_package() -> None:
    durations, terminal = Durations({}, ROOT), Terminal()
    for name, seconds in (("tests/plan/a.py::one", 40), ("tests/plan/b/c.py::two", 2.5), ("tests/d.py::three", 60.0)):
        for _ in range(2):  # setup and call
            durations.pytest_runtest_logreport(Report(name, seconds / 2))  # type: ignore[arg-type]
    durations.pytest_terminal_summary(terminal)  # type: ignore[arg-type]
    assert {"42.5  tests/plan", "60.0  tests", "40.0  tests/plan/a.py", "102.5  in all"} <= set(terminal.lines)


def test_durations_count_subtests_once() -> None:
    durations, terminal = Durations({}, ROOT), Terminal()
    for kind in (pytest.SubtestReport, pytest.SubtestReport, pytest.TestReport):
        place = ("tests/a.py", 1, "one")
        report = kind("tests/a.py::one", place, {}, "passed", None, "call", duration=70.0)
        durations.pytest_runtest_logreport(report)
    durations.pytest_terminal_summary(terminal)  # type: ignore[arg-type]
    assert "70.0  in all" in terminal.lines


@pytest.mark.parametrize(("options", "workers"), [([], 1), (["-n2", "--dist", "loadfile"], 2)])
def test_pytest_run_first_prints_number_of_tests_and_estimated_time(
    options: list[str], workers: int, pytester: pytest.Pytester, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository))
    pytester.makeconftest('pytest_plugins = ["tests.durations"]')
    pytester.makepyfile("def test_one(): pass\ndef test_two(): pass\n")
    shown = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options).stdout.str()
    assert f"2 tests in 1 files: less than a minute on {workers} idle CPUs" in shown
