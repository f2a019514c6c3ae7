"""Hook that extends the time limit of each test on a slow machine; each root conftest.py imports it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.pace import Pace

__all__ = ["pytest_runtest_protocol"]

_pace = Pace()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Multiply the time limit of each test by twice the slowness of the machine, where other programs may run.

    Twice, because the machine may become slower during the test.
    """
    marked = item.get_closest_marker("timeout")
    asked = item.config.getoption("timeout", None)
    limit = marked.args[0] if marked and marked.args else item.config.getini("timeout") if asked is None else asked
    if asked is None and float(limit) > 0:
        item.add_marker(pytest.mark.timeout(float(limit) * 2 * _pace.slowness), append=False)
    return (yield)
