"""Time of planning, and quality of mixing: `python -m benchmarks.planning`. Needs no dataset.

Prints the machine's facts, then each figure as the median of several runs with its spread, beside the bound that it has
to keep. Exits with 1 if one is not kept.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

from petastore.inventory import Inventory
from petastore.plan import Cursor, LastBatch, Order, Plan, ReadRequest, Shard
from petastore.plan.report.explanation import Explanation
from petastore.plan.request import shuffled_lanes
from petastore.plan.state import dump_state

RUNS = 9


@dataclasses.dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    values: list[float]
    unit: str
    bound: float

    @property
    def is_kept(self) -> bool:
        """Whether the median is within the bound."""
        return statistics.median(self.values) <= self.bound

    def __str__(self) -> str:
        middle, low, high = statistics.median(self.values), min(self.values), max(self.values)
        spread = "" if len(self.values) == 1 else f"  ({low:,.3g} to {high:,.3g})"
        kept = "kept" if self.is_kept else "NOT KEPT"
        return f"{self.what:<58} {middle:>9,.3g} {self.unit:<5} at most {self.bound:>6,g}  {kept}{spread}"


def inventory_of(groups: int) -> Inventory:
    """Uneven row groups, as a filter or a Spark job leaves them."""
    return Inventory.of_rows(np.random.RandomState(0).randint(700, 1300, groups), bytes_per_row=100)


def plan_over(inventory: Inventory, *, rank: int = 0, ranks: int = 8, seed: int = 7) -> Plan:
    """A plan as `make_reader(shuffle_rows=True)` makes it, without storage."""
    lanes, block_rows = shuffled_lanes(inventory, shuffle_buffer_bytes=2**28, lanes=None, block_rows=None)
    order = Order(seed=seed, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=block_rows)
    return Plan(inventory, ReadRequest(("id",), order, Shard(rank, ranks), None))


def seconds(run: Callable[[int], object]) -> list[float]:
    """How long each of several runs took; the first, which warms up, is left out."""
    took = []
    for number in range(RUNS + 1):
        began = time.perf_counter()
        run(number)
        took.append(time.perf_counter() - began)
    return took[1:]


def first_batch() -> Figure:
    """Planning an epoch over a million row groups, up to this rank's first batch."""
    inventory = inventory_of(1_000_000)
    took = seconds(lambda seed: next(plan_over(inventory, seed=seed).spans(256, rows_per_span=1)))
    return Figure("an epoch of 1,000,000 row groups, to the first batch", [1e3 * one for one in took], "ms", 60)


def cold_resume() -> Figure:
    """Going on in the middle of an epoch over ten thousand row groups."""
    inventory = inventory_of(10_000)
    after = Cursor(3, inventory.num_rows // 2)
    took = seconds(lambda seed: next(plan_over(inventory, seed=seed).spans(256, rows_per_span=1, after=after)))
    return Figure("cold resume in mid-epoch, 10,000 row groups", [1e3 * one for one in took], "ms", 10)


def state_size() -> Figure:
    """A state, with the largest numbers that it may hold in practice."""
    plan = plan_over(inventory_of(10_000), seed=2**63 - 1)
    return Figure("state", [float(len(json.dumps(dump_state(plan, Cursor(10**6, 10**12)))))], "bytes", 300)


def reads_per_row_group() -> Figure:
    """The most often that row groups are read over all ranks, of all numbers of ranks that divide the lanes."""
    inventory = inventory_of(2_000)
    worst = 0.0
    for ranks in (1, 2, 3, 4, 6, 8, 12, 16, 24, 48):
        plans = [dataclasses.replace(plan_over(inventory), request=request) for request in _requests(inventory, ranks)]
        reads = sum(len(span.fetch) for plan in plans for span in plan.spans(256, rows_per_span=2**16))
        worst = max(worst, reads / inventory.num_row_groups)
    return Figure("reads per row group, 1 to 48 ranks, 48 lanes", [worst], "×", 1.05)


def _requests(inventory: Inventory, ranks: int) -> list[ReadRequest]:
    _, block_rows = shuffled_lanes(inventory, shuffle_buffer_bytes=2**28, lanes=48, block_rows=None)
    order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=48, block_rows=block_rows)
    return [ReadRequest(("id",), order, Shard(rank, ranks), 1, LastBatch.EVEN) for rank in range(ranks)]


def per_batch() -> Figure:
    """What planning costs the consumer's thread for each batch of 256 rows, over spans as readers ask for them."""
    plan = plan_over(inventory_of(10_000), ranks=1)

    def run(_: int) -> None:
        spans = plan.spans(256, rows_per_span=2**16)
        batches = 0
        began = time.perf_counter()
        while batches < 4096:
            batches += next(spans).num_batches
        costs.append((time.perf_counter() - began) / batches)

    costs: list[float] = []
    seconds(run)
    return Figure("planning a batch of 256 rows", [1e6 * cost for cost in costs[1:]], "µs", 100)


def best_mixing() -> Figure:
    """The best mixing with at most 100,000 rows in memory, of label-sorted data."""
    found = [said.mixing for said in _mixed() if said.rows_resident <= 100_000]
    return Figure("label-sorted rows, at most 100,000 in memory: variation", [min(found)], "", 0.40)


@functools.cache
def _mixed() -> list[Explanation]:
    inventory = Inventory.of_rows([1000] * 1000)
    explained = []
    for lanes, block_rows in itertools.product((24, 48, 96), (1, 500, 1000, 2000, 4000)):
        order = Order(seed=7, shuffle_row_groups=True, shuffle_rows=True, lanes=lanes, block_rows=block_rows)
        explained.append(Plan(inventory, ReadRequest(("id",), order)).explain(256))
    return explained


def mixing() -> list[str]:
    """Total variation of labels on label-sorted data against the rows of row groups that are kept."""
    lines = ["", "mixing: 1,000,000 label-sorted rows in 1,000 row groups, batches of 256; total variation of labels"]
    for said in _mixed():
        sizes = f"{said.lanes:>3} lanes, blocks of {said.block_rows:>5,}"
        lines.append(f"  {sizes}: {said.mixing:.3f} with {said.rows_resident:>7,} rows kept")
    lines.append(f"  uniform: {said.mixing_uniform:.3f}; row-group order alone: 0.99")
    return lines


def main() -> int:
    """Prints the table; 1 if a bound is not kept."""
    print(f"{platform.platform()}, Python {platform.python_version()}, NumPy {np.__version__}; medians of {RUNS} runs")
    figures = [first_batch(), cold_resume(), state_size(), reads_per_row_group(), per_batch(), best_mixing()]
    print("\n".join(map(str, figures)))
    print("\n".join(mixing()))
    return 0 if all(figure.is_kept for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
