"""Pytest plugin that raises an error if the tested petastore is not the installed one.

Otherwise tests could silently use another petastore that is on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import petastore

__all__ = ["pytest_sessionstart"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Check the location of petastore, in every process that runs tests.

    Raises:
        pytest.UsageError: petastore was imported from another location.
    """
    there = Path(petastore.__file__).resolve()
    if not there.is_relative_to(Path(sys.prefix).resolve()):
        raise pytest.UsageError(
            f"petastore is {there}, and not what is installed in {sys.prefix} ({session.config.rootpath})"
        )
