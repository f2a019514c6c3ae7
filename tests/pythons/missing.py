"""Pytest plugin that skips a test that fails because a package is not installed, and names the package.

`-p tests.pythons.missing` is for environments that have the core and some extras. `make test` has all packages, and
does not use it.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

import pytest

__all__ = ["pytest_make_collect_report", "pytest_runtest_makereport"]

_OfFiles: TypeAlias = Generator[None, pytest.CollectReport, pytest.CollectReport]
_OfTests: TypeAlias = Generator[None, pytest.TestReport, pytest.TestReport]
_Report = TypeVar("_Report", pytest.CollectReport, pytest.TestReport)

# Messages of Python and of `petastore.errors.MissingExtraError`, also in the output of subprocesses.
_SAID = re.compile(r"(?:No module named|needs the package) '(\w+)")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> _OfFiles:
    """Skip a file or module that cannot be imported because of a missing package."""
    return _without_what_is_missing((yield), collector)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> _OfTests:
    """Skip a test or doctest that fails, also in a fixture, because of a missing package."""
    return _without_what_is_missing((yield), item)


def _without_what_is_missing(report: _Report, node: Any) -> _Report:
    if report.failed:
        named = dict.fromkeys(_SAID.findall(report.longreprtext))
        missing = [name for name in named if importlib.util.find_spec(name) is None]
        if missing:
            report.outcome = "skipped"
            report.longrepr = (str(node.path), 0, f"Skipped: needs {missing[-1]}")
    return report
