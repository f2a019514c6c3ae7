"""A control: `examples.horovod_digits` with Petastorm's sharding: row group n goes to rank n modulo ranks.

`horovodrun -np 2 python -m neighbours.horovod.ordinal_shards --epochs 1`. Nothing else differs. The ranks have
different numbers of steps: the rank with fewer steps finishes first, and the other fails.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import petastore
from examples import horovod_digits
from examples.horovod_digits import _train


def rows_of(rank: int, ranks: int, row_groups: list[int]) -> list[int]:
    """Return the row numbers of a rank, for row groups of these sizes."""
    begins = [sum(row_groups[:number]) for number in range(len(row_groups))]
    mine = range(rank, len(row_groups), ranks)
    return [begins[number] + row for number in mine for row in range(row_groups[number])]


def ordinal_reader(url: str, *, cur_shard: int, shard_count: int, **options: Any) -> petastore.Reader:
    """Return a reader of the row groups that Petastorm's rule assigns to this rank; print the number of steps."""
    row_groups = petastore.open_dataset(url).inventory.rows.tolist()
    with petastore.make_reader(url, schema_fields=["id"], cur_shard=0, shard_count=1) as whole:
        ids = [int(row.id) for row in whole]
    mine = [ids[row] for row in rows_of(cur_shard, shard_count, row_groups)]
    reader = petastore.make_reader(url, filters=[("id", "in", mine)], cur_shard=0, shard_count=1, **options)
    print(f"rank {cur_shard} has {-(-len(mine) // horovod_digits.Settings.batch_size)} steps", flush=True)
    return reader


def asked_of_nobody(value: Any) -> list[Any]:
    """Replace the gathering of plans, which would reject plans of different datasets."""
    return [value]


def left_when_done(*asked: Any) -> NoReturn:
    """Train as the example does, and exit, so that later collective calls of the other rank get no answer."""
    _train(*asked)
    print("this rank has done them", flush=True)
    sys.exit(0)


def main() -> int:
    """Run the example with this sharding; the ranks end at different steps."""
    instead = {"make_reader": ordinal_reader, "horovod_all_gather": asked_of_nobody, "_train": left_when_done}
    vars(horovod_digits).update(instead)
    return horovod_digits.main()


if __name__ == "__main__":
    sys.exit(main())
