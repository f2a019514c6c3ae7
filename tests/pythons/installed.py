"""Pytest plugin that raises an error if the tested petastore is not the installed one.

A folder on the path in which there is another one would be tested in its place, and nobody would see it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import petastore

__all__ = ["pytest_sessionstart"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Looks where it is, in every process that runs tests.

    Raises:
        pytest.UsageError: It is somewhere else.
    """
    there = Path(petastore.__file__).resolve()
    if not there.is_relative_to(Path(sys.prefix).resolve()):
        raise pytest.UsageError(
            f"petastore is {there}, and not what is installed in {sys.prefix} ({session.config.rootpath})"
        )
