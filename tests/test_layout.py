"""The layout tells the architecture: rooms are small."""

from __future__ import annotations

import collections
from pathlib import Path

MOST_FILES = 15


def test_no_floor_has_more_files_than_one_takes_in_at_a_glance(repository: Path) -> None:
    floors = collections.Counter(path.parent for path in (repository / "petastore").rglob("*.py"))
    assert {str(floor.relative_to(repository)): count for floor, count in floors.items() if count > MOST_FILES} == {}
