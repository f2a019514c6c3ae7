"""A control: `examples.horovod_digits` as it is, but dealt as Petastorm deals: row group n to rank n modulo ranks.

`horovodrun -np 2 python -m neighbours.horovod.ordinal_shards --epochs 1`. Nothing else differs. The ranks disagree
about how many steps there are: the one with fewer has done them and leaves, and lets the other down.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import petastore
from examples import horovod_digits
from examples.horovod_digits import _train


def rows_of(rank: int, ranks: int, row_groups: list[int]) -> list[int]:
    """Numbers of a rank's rows, where row groups have so many rows."""
    begins = [sum(row_groups[:number]) for number in range(len(row_groups))]
    mine = range(rank, len(row_groups), ranks)
    return [begins[number] + row for number in mine for row in range(row_groups[number])]


def ordinal_reader(url: str, *, cur_shard: int, shard_count: int, **options: Any) -> petastore.Reader:
    """A reader of the row groups that Petastorm's rule gives this rank; says how many steps they are."""
    row_groups = petastore.open_dataset(url).inventory.rows.tolist()
    with petastore.make_reader(url, schema_fields=["id"], cur_shard=0, shard_count=1) as whole:
        ids = [int(row.id) for row in whole]
    mine = [ids[row] for row in rows_of(cur_shard, shard_count, row_groups)]
    reader = petastore.make_reader(url, filters=[("id", "in", mine)], cur_shard=0, shard_count=1, **options)
    print(f"rank {cur_shard} has {-(-len(mine) // horovod_digits.Settings.batch_size)} steps", flush=True)
    return reader


def asked_of_nobody(value: Any) -> list[Any]:
    """Stands for the gathering of plans, which would refuse these: the ranks' plans are not of one dataset."""
    return [value]


def left_when_done(*asked: Any) -> NoReturn:
    """Trains as the example does, and leaves: nobody answers what it asks for then."""
    _train(*asked)
    print("this rank has done them", flush=True)
    sys.exit(0)


def main() -> int:
    """Run the example so; the ranks do not come to its end together."""
    instead = {"make_reader": ordinal_reader, "horovod_all_gather": asked_of_nobody, "_train": left_when_done}
    vars(horovod_digits).update(instead)
    return horovod_digits.main()


if __name__ == "__main__":
    sys.exit(main())
