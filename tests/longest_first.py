"""Files of long tests are begun first, so that no processor waits at the end for another one's last file."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

__all__ = ["pytest_collection_modifyitems"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """By the longest time limit that a test of the file asks for, then those marked `slow`, then as they were found."""
    ranks: dict[Path, tuple[float, bool]] = defaultdict(lambda: (0.0, False))
    for item in items:
        limit = item.get_closest_marker("timeout")
        asked = float(limit.args[0]) if limit is not None and limit.args else 0.0
        ranks[item.path] = max(ranks[item.path], (asked, item.get_closest_marker("slow") is not None))
    items.sort(key=lambda item: ranks[item.path], reverse=True)
