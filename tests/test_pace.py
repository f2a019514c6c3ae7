"""Tests of time limits that depend on the measured speed of the machine."""

from __future__ import annotations

import pytest

from tests import pace


def test_machine_speed_is_the_slower_of_two_measurements() -> None:
    found, now = [1.0, 3.0, 1.0, 1.0], [0.0]
    of_this_run = pace.Pace(lambda: found.pop(0), lambda: now[0])
    seen = []
    for second in (0, 10, 20, 30, 40, 60):
        now[0] = float(second)
        seen.append(of_this_run.slowness)
    assert (seen, found) == ([1.0, 1.0, 3.0, 3.0, 3.0, 1.0], [])


def test_timeout_of_a_test_is_never_below_the_configured_one(request: pytest.FixtureRequest) -> None:
    limit = request.node.get_closest_marker("timeout")
    assert limit.args[0] >= float(request.config.getini("timeout"))
