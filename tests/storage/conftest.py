"""What the tests of storage share."""

from __future__ import annotations

import fsspec.asyn
import pytest


@pytest.fixture(scope="session", autouse=True)
def _loop_that_fsspec_keeps() -> None:
    """Start the one thread that fsspec keeps for asynchronous filesystems, so that no test is blamed for it."""
    fsspec.asyn.get_loop()
