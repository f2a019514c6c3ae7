"""Files of long tests come first, whole, and all others stay in their order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.longest_first import pytest_collection_modifyitems


@dataclass
class Item:
    path: Path
    mark: pytest.Mark | None = None

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self.mark if self.mark is not None and self.mark.name == name else None


def test_a_file_moves_whole_by_its_longest_test() -> None:
    quick, slow, long, last = (Path(name) for name in ("quick", "slow", "long", "last"))
    limit, longer = (pytest.mark.timeout(seconds).mark for seconds in (300, 600))
    items: Any = [
        Item(quick), Item(slow), Item(slow, pytest.mark.slow.mark), Item(long, limit), Item(long), Item(last, longer),
        Item(quick),
    ]  # fmt: skip
    pytest_collection_modifyitems(items)
    assert [item.path.name for item in items] == ["last", "long", "long", "slow", "slow", "quick", "quick"]
