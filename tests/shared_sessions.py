"""Pytest plugin for xdist: all files of `tests/spark` run on one worker, where each kind of Spark session starts once.

All other tests are distributed by file, as with `--dist loadfile`.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

__all__ = ["SharedSessions", "pytest_xdist_make_scheduler"]

_ONE_WORKER = ("tests/spark/",)
"""Folders whose files share session fixtures that are slow to start."""


class SharedSessions(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """xdist scheduler that distributes tests by file, and the folders above as a whole."""

    def _split_scope(self, nodeid: str) -> str:
        folder = next((folder for folder in _ONE_WORKER if nodeid.startswith(folder)), None)
        return folder or str(super()._split_scope(nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SharedSessions | None:
    """Return the scheduler for `--dist loadfile`; other `--dist` modes are unchanged."""
    return SharedSessions(config, log) if config.getvalue("dist") == "loadfile" else None
