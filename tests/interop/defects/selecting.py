"""Checks of the rows that predicates and filters select, and of the values that they receive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from .data import ids_of, numbers, petastorm, written


def _partitioned(folder: Path) -> str:
    """Write 100 rows with two text partition keys, of two and four values, and return the URL."""
    ids = np.arange(100)
    columns = {"id": ids, "quarter": [f"q{number // 25}" for number in ids], "half": [f"h{n // 50}" for n in ids]}
    pq.write_to_dataset(pa.table(columns), str(folder), partition_cols=["half", "quarter"])
    return folder.resolve().as_uri()


def rows_stay_whole_under_a_predicate(folder: Path) -> None:
    """Petastorm reads the columns of the predicate separately, and shuffles them separately."""
    keep = petastorm("petastorm.predicates").in_lambda(["id"], lambda number: number >= 0)
    asked = {"predicate": keep, "shuffle_rows": True, "reader_pool_type": "dummy"}
    with petastorm().make_reader(numbers(folder, 50), **asked) as reader:
        rows = [(int(row.id), int(row.double)) for row in reader]
    wrong = sum(double != 2 * number for number, double in rows)
    assert (len(rows), wrong) == (50, 0), f"{wrong} of {len(rows)} rows have columns of different rows"


def integers_stay_integers_under_a_predicate(folder: Path) -> None:
    """Petastorm's batch reader converts integers to floats."""
    large = 2**53 + 1
    keep = petastorm("petastorm.predicates").in_lambda(["id"], lambda number: number > 0)
    url = written(folder, {"id": [0, 1, 2], "large": [1, large, large]})
    with petastorm().make_batch_reader(url, predicate=keep, reader_pool_type="dummy") as reader:
        batch = next(iter(reader))
    assert batch.large.dtype.kind == "i", f"they are {batch.large.dtype}"
    assert batch.large.tolist() == [large, large]


def built_in_predicates_work_in_batches(folder: Path) -> None:
    """Petastorm's batch reader supports only functions as predicates."""
    predicates = petastorm("petastorm.predicates")
    keep = predicates.in_negate(predicates.in_set({3, 4}, "id"))
    with petastorm().make_batch_reader(numbers(folder, 10), predicate=keep, reader_pool_type="dummy") as reader:
        found = [int(number) for batch in reader for number in batch.id]
    assert sorted(found) == [0, 1, 2, 5, 6, 7, 8, 9]


def predicates_look_at_any_partition_key(folder: Path) -> None:
    """Petastorm supports only one partition key."""
    keep = petastorm("petastorm.predicates").in_lambda(["quarter"], lambda quarter: quarter == "q2")
    asked = {"predicate": keep, "reader_pool_type": "dummy"}
    assert sorted(ids_of(petastorm().make_reader(_partitioned(folder), **asked))) == list(range(50, 75))


def filters_are_about_any_column(folder: Path) -> None:
    """Petastorm ignores filters on columns that are not partition keys."""
    asked = {"filters": [("id", "<", 10)], "reader_pool_type": "dummy"}
    found = ids_of(petastorm().make_reader(numbers(folder, 100), **asked))
    assert sorted(found) == list(range(10)), f"{len(found)} rows"


def ranks_get_equal_shares_under_a_predicate(folder: Path) -> None:
    """Petastorm also divides row groups that the predicate excludes, so one rank may get no rows."""
    for part in range(4):
        columns: dict[str, Any] = {"id": list(range(part * 20, part * 20 + 20)), "part": [str(part)] * 20}
        pq.write_to_dataset(pa.table(columns), str(folder), partition_cols=["part"])
    predicates = petastorm("petastorm.predicates")
    keep = predicates.in_lambda(["part"], lambda part: int(part) % 2 == 0)
    shares = [
        ids_of(
            petastorm().make_reader(
                folder.resolve().as_uri(), predicate=keep, cur_shard=rank, shard_count=2, reader_pool_type="dummy"
            )
        )
        for rank in range(2)
    ]
    assert sorted(map(len, shares)) == [20, 20], f"{len(shares[0])} and {len(shares[1])} rows"
