"""Checks of which rows are read, how often, and in which order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from .data import ids_of, numbers, petastorm, written

ROWS = 100


def each_opening_gives_all_rows(folder: Path) -> None:
    """Petastorm's default reader returns no rows in 10 to 40 of 100 openings of a small dataset."""
    url = numbers(folder, 10)
    found = [len(ids_of(petastorm().make_reader(url))) for _ in range(100)]
    assert found == [10] * 100, f"of 100 openings {100 - found.count(10)} did not give the 10 rows"


def each_pass_gives_all_rows(folder: Path) -> None:
    """After `reset`, Petastorm returns all rows, none, or each row twice."""
    found = []
    with petastorm().make_reader(numbers(folder, 40)) as reader:
        for _ in range(50):
            found.append(sum(1 for _ in reader))
            reader.reset()
    assert set(found) == {40}, f"50 passes gave {sorted(set(found))} rows"


def shuffling_with_drop_partitions_loses_and_repeats_nothing(folder: Path) -> None:
    """Petastorm permutes a row group again for each of its parts, so rows are lost and repeated."""
    asked = {"shuffle_rows": True, "shuffle_row_drop_partitions": 2, "reader_pool_type": "dummy"}
    found = ids_of(petastorm().make_reader(numbers(folder, ROWS), **asked))
    assert sorted(found) == list(range(ROWS)), f"{len(found)} rows, {len(set(found))} of them different"


def each_epoch_has_another_order(folder: Path) -> None:
    """Petastorm shuffles row groups only once for all epochs."""
    reader = petastorm().make_reader(numbers(folder, ROWS), num_epochs=3, seed=1, reader_pool_type="dummy")
    found = ids_of(reader)
    epochs = {tuple(found[at : at + ROWS]) for at in range(0, 3 * ROWS, ROWS)}
    assert len(epochs) == 3, f"3 epochs had {len(epochs)} orders"


def shuffled_rows_have_another_order_in_each_epoch(folder: Path) -> None:
    """Petastorm with a seed shuffles the rows of a row group in the same way in each epoch."""
    asked = {"num_epochs": 3, "seed": 1, "shuffle_rows": True, "reader_pool_type": "dummy"}
    found = ids_of(petastorm().make_reader(numbers(folder, 10), **asked))
    assert len({tuple(found[at : at + 10]) for at in (0, 10, 20)}) == 3, "3 epochs had one order inside a row group"


def zero_is_a_seed(folder: Path) -> None:
    """Petastorm treats seed 0 as no seed, and 0 is Horovod's default."""
    url = numbers(folder, ROWS)
    asked = {"seed": 0, "shuffle_rows": True, "reader_pool_type": "dummy"}
    assert ids_of(petastorm().make_reader(url, **asked)) == ids_of(petastorm().make_reader(url, **asked))


def a_loader_gives_each_row_once_in_each_pass(folder: Path) -> None:
    """Petastorm's DataLoader keeps a last batch that is not full, and returns it in the next pass."""
    with petastorm().make_reader(numbers(folder, 10), reader_pool_type="dummy") as reader:
        loader = petastorm("petastorm.pytorch").DataLoader(reader, batch_size=4)
        for _ in range(2):
            found = [number for batch in loader for number in batch["id"].tolist()]
            assert sorted(found) == list(range(10)), f"a pass gave {found}"


def a_loop_that_was_left_is_begun_again(folder: Path) -> None:
    """Petastorm's readers can be reset only after their last row."""
    with petastorm().make_reader(numbers(folder, 10), reader_pool_type="dummy") as reader:
        loader = petastorm("petastorm.pytorch").DataLoader(reader, batch_size=4)
        next(iter(loader))
        assert sum(len(batch["id"]) for batch in loader) == 10


def an_empty_row_group_is_no_error(folder: Path) -> None:
    """Petastorm divides by the number of rows of the row group."""
    folder.mkdir(exist_ok=True)
    table = pa.table({"id": [1, 2, 3]})
    with pq.ParquetWriter(folder / "data.parquet", table.schema) as writer:
        for part in (table, table.slice(0, 0), table):
            writer.write_table(part)
    assert pq.ParquetFile(folder / "data.parquet").metadata.num_row_groups == 3
    url = folder.resolve().as_uri()
    assert sorted(ids_of(petastorm().make_reader(url, reader_pool_type="dummy"))) == [1, 1, 2, 2, 3, 3]


FIELDS = """
import sys, warnings
warnings.simplefilter("ignore")
from petastorm import make_reader
with make_reader(sys.argv[1], schema_fields=["[a-h]_.*"], reader_pool_type="dummy") as reader:
    print(*next(reader)._fields)
"""


def each_process_has_the_columns_in_one_order(folder: Path) -> None:
    """In Petastorm, fields selected by regular expressions are ordered by text hashes, which differ between ranks."""
    url = written(folder / "data", {f"{letter}_{number}": [1] for letter in "hgfedcba" for number in range(3)})
    script = folder / "fields.py"
    script.write_text(FIELDS)
    switch = [] if hasattr(petastorm(), "__file__") else ["-m", "petastore.interop.petastorm"]
    orders = {
        subprocess.run(
            [sys.executable, *switch, str(script), url],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(orders) == 1, f"three processes had {len(orders)} orders of columns"


def all_rows_are_kept_in_memory(folder: Path) -> None:
    """Petastorm keeps only 1,024 rows by default, without a warning."""
    loader_type = petastorm("petastorm.pytorch").InMemBatchedDataLoader
    with petastorm().make_batch_reader(numbers(folder, 3000, rows_per_row_group=100), workers_count=1) as reader:
        found = sum(len(batch["id"]) for batch in loader_type(reader, batch_size=100))
    assert found == 3000, f"{found} of 3000 rows"
