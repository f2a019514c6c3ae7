"""What tests of pictures share."""

from __future__ import annotations

import io

import pytest

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest


@pytest.fixture(scope="session")
def fonts() -> None:
    """Matplotlib keeps the font files open that it has once drawn with; no test is to be blamed for that."""
    order = Order(seed=0, shuffle_row_groups=True, shuffle_rows=True, lanes=1, block_rows=1)
    Plan(Inventory.of_rows([1]), ReadRequest(("id",), order)).picture(1).savefig(io.BytesIO())
