"""Pytest plugin that leaves slow tests out of `make test`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tier import IS_FULL

__all__ = ["pytest_collection_modifyitems", "pytest_ignore_collect"]

_SLOW_FILE = re.compile(r"^pytestmark = .*\bpytest\.mark\.slow\b", re.MULTILINE)
# Doctests of these packages import TensorFlow, which takes eight seconds of CPU in every pytest worker.
_SLOW_DOCTESTS = ("petastore/adapters/tensorflow", "petastore/adapters/keras")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore files that are marked slow as a whole, because importing some of them takes seconds."""
    if IS_FULL or collection_path.suffix != ".py":
        return None
    if any(folder in collection_path.as_posix() for folder in _SLOW_DOCTESTS):
        return True
    if collection_path.name.startswith("test_") and _SLOW_FILE.search(collection_path.read_text(encoding="utf-8")):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests marked `slow` in `make test`."""
    if IS_FULL:
        return
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item.get_closest_marker("slow") is None]
