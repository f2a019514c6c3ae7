"""Draw `docs/images/order.png`: `python -m benchmarks.order_picture`. Needs matplotlib, but no dataset.

An epoch of 200,000 rows in 200 row groups for four ranks, with few lanes so that the picture can be read.
"""

from __future__ import annotations

from pathlib import Path

from petastore.inventory import Inventory
from petastore.plan import Order, Plan, ReadRequest, Shard

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "order.png"


def main() -> None:
    """Draws it."""
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=12, block_rows=4000)
    plan = Plan(Inventory.of_rows([1000] * 200), ReadRequest(("id",), order, Shard(0, 4)))
    plan.plot(batch_size=64).savefig(PICTURE, dpi=120, metadata={"Software": None})
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
