"""Pytest plugin for test durations: start long files first, estimate the run time, print the slowest files.

`tests/durations.json` has the seconds of each test file in `make test` and `make test-all`, on two idle CPUs. It is
written by `WRITE_DURATIONS=1 make test` (and `make test-all`). `TESTS_ORDER=7 make test` starts the files in a random
order, which depends on the number.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.tier import IS_FULL

__all__ = ["Durations", "area_of", "pytest_configure", "sort_at_random", "sort_by_duration"]

_FILE = Path(__file__).with_name("durations.json")
_TIER = "test-all" if IS_FULL else "test"
_UNKNOWN_S = 5.0
"""Assumed seconds of a file that was never measured, so that it starts neither first nor last."""


def sort_by_duration(items: list[pytest.Item], seconds: Mapping[str, float], root: Path) -> None:
    """Sort tests so that the longest files start first; tests of one file keep their order."""
    items.sort(key=lambda item: -seconds.get(_relative(item.path, root), _UNKNOWN_S))


def sort_at_random(items: list[pytest.Item], seed: str, root: Path) -> None:
    """Sort tests so that files start in a random order, which depends on the seed; tests of one file keep their order.

    All workers must have the same order, also if they have different hash seeds.
    """
    items.sort(key=lambda item: hashlib.sha256(f"{seed} {_relative(item.path, root)}".encode()).digest())


def area_of(file: str) -> str:
    """Return the area that a test file counts for: its first two folders, or one folder for files directly in it.

    Example:
        >>> area_of("tests/plan/order/test_order.py"), area_of("tests/test_docs.py"), area_of("petastore/front.py")
        ('tests/plan', 'tests', 'petastore')
    """
    folders = file.split("/")[:-1]
    return "/".join(folders[:2] if folders[:1] == ["tests"] else folders[:1])


class Durations:
    """Plugin that reorders the tests of each worker; the main process reports the time of the run.

    Args:
        recorded: Seconds of each file, by tier; `tests/durations.json`.
        root: The folder that file names are relative to.
    """

    def __init__(self, recorded: Mapping[str, Mapping[str, float]], root: Path) -> None:
        self._recorded = recorded.get(_TIER, {})
        self._root = root
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._is_announced = False

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Start the longest files first, so that no CPU idles while another finishes the last file."""
        seed = os.environ.get("TESTS_ORDER")
        if seed:
            sort_at_random(items, seed, self._root)
        else:
            sort_by_duration(items, self._recorded, self._root)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Announce the run if it has no worker processes."""
        if not session.config.getoption("numprocesses", None) and not hasattr(session.config, "workerinput"):
            self._announce(session.config, [item.nodeid for item in session.items], 1)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        """Announce the run once the first worker has collected the tests."""
        self._announce(node.config, ids, max(1, len(node.config.option.tx or [1])))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the time of a test and of its fixtures to its file; the time of subtests is included."""
        if not isinstance(report, pytest.SubtestReport):
            self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        """Print the slowest files and the time of each area."""
        if sum(self._seconds.values()) < 60:
            return
        terminalreporter.section("where the time went (seconds of all workers)")
        areas: defaultdict[str, float] = defaultdict(float)
        for file, seconds in self._seconds.items():
            areas[area_of(file)] += seconds
        for title, times in (("areas", areas), ("slowest files", self._seconds)):
            terminalreporter.write_line(f"{title}:")
            for name, seconds in _slowest(times.items(), 25):
                terminalreporter.write_line(f"{seconds:8.1f}  {name}")
        terminalreporter.write_line(f"{sum(areas.values()):8.1f}  in all")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the seconds of this run if `WRITE_DURATIONS` is set."""
        if os.environ.get("WRITE_DURATIONS") and not hasattr(session.config, "workerinput"):
            recorded = _read()
            recorded[_TIER] = {file: round(seconds, 1) for file, seconds in sorted(self._seconds.items())}
            _FILE.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")

    def _announce(self, config: pytest.Config, ids: list[str], workers: int) -> None:
        if self._is_announced:
            return
        self._is_announced = True
        files = {name.partition("::")[0] for name in ids}
        processors = min(workers, os.cpu_count() or 1)
        minutes = sum(self._recorded.get(file, _UNKNOWN_S) for file in files) / processors / 60
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            about = f"about {minutes:.0f} minutes" if minutes >= 1 else "less than a minute"
            reporter.write_line(f"{len(ids):,} tests in {len(files):,} files: {about} on {processors} idle CPUs")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin with the recorded durations."""
    config.pluginmanager.register(Durations(_read(), config.rootpath), "petastore-durations")


def _read() -> dict[str, dict[str, float]]:
    return json.loads(_FILE.read_text(encoding="utf-8")) if _FILE.exists() else {}


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.as_posix()


def _slowest(times: Iterable[tuple[str, float]], most: int) -> list[tuple[str, float]]:
    return sorted(times, key=lambda entry: -entry[1])[:most]
