"""Tests of `memory_budget`: a process takes no more memory than estimated, and batches do not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import Unischema, UnischemaField, make_batch_reader, make_reader
from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError
from tests.tier import IS_FULL, sized
from tests.warm_interpreters import WarmInterpreter

SCHEMA = Unischema(
    "arrays", [UnischemaField("id", np.int64), UnischemaField("x", np.float32, (64, 32), NdarrayCodec())]
)

# Reads all rows. Prints the budget and the memory taken; a small dataset is read first to load all modules.
PROGRAM = """
import json, sys
from petastore import make_reader
from tests.readers import memory_counters

small, url, epochs, options = *sys.argv[1:3], int(sys.argv[3]), json.loads(sys.argv[4])
with make_reader(small, workers_count=2) as reader:
    rows = sum(batch.num_rows for batch in reader.iter_batches(64))
memory_counters.begin()
with make_reader(url, workers_count=2, seed=3, num_epochs=epochs, **options) as reader:
    rows = sum(batch.num_rows for batch in reader.iter_batches(64))
    foretold = reader.estimate_memory(64).total_bytes
taken, grown = memory_counters.most_taken(), memory_counters.grown_resident()
print(json.dumps({"rows": rows, "foretold": foretold, "taken": taken, "grown": grown}))
"""


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Write a dataset of 123 MB and a small one with the same schema."""
    folder = tmp_path_factory.mktemp("arrays")
    random = np.random.RandomState(0)

    def rows(count: int) -> Any:
        for number in range(count):
            yield {"id": number, "x": random.rand(64, 32).astype(np.float32)}

    for name, count in (("small", 100), ("large", 15_000)):
        petastore.write_dataset(str(folder / name), SCHEMA, rows(count), rows_per_row_group=500)
    return str(folder / "small"), str(folder / "large")


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("megabytes", [100, 140])
def test_memory_budget_bounds_the_memory_of_the_process(
    urls: tuple[str, str], shuffle: bool, megabytes: int, warm_python: WarmInterpreter
) -> None:
    """Checks counters of requested memory, and in `make test-all` resident memory with allocators' reserves."""
    options = {"memory_budget": megabytes * 10**6, "shuffle_rows": shuffle, "shuffle_buffer_bytes": 24 * 10**6}
    epochs = sized(full=3, quick=1)
    ran = warm_python.run(PROGRAM, *urls, epochs, json.dumps(options))
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert said["rows"] == epochs * 15_000
    assert 20 * 10**6 < said["taken"] <= said["foretold"] <= megabytes * 10**6
    assert not IS_FULL or said["grown"] <= 1.1 * megabytes * 10**6


def test_memory_budget_does_not_change_batches(urls: tuple[str, str]) -> None:
    def ids(**options: Any) -> list[list[int]]:
        with make_reader(urls[1], ["id"], shuffle_rows=True, seed=1, workers_count=2, **options) as reader:
            return [batch["id"].tolist() for batch in reader.iter_batches(500)]

    assert ids(memory_budget=80_000_000) == ids()


def test_cached_footers_take_at_most_an_eighth_of_memory_budget(tmp_path: Path) -> None:
    """8,000 column chunks have 8 MB of footers."""
    for number in range(16):
        table = pa.table({f"c{column}": np.arange(10) for column in range(100)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
    kept, estimates = [], []
    for budget in (None, 10**9, 40 * 10**6):
        dataset = petastore.open_dataset(str(tmp_path))
        with make_batch_reader(dataset, ["c1"], workers_count=1, memory_budget=budget) as reader:
            assert sum(len(batch.c1) for batch in reader) == 160
            estimates.append(reader.estimate_memory(2).total_bytes)
        kept.append(len(dataset.footers))
    assert kept[:2] == [16, 16]
    assert 0 < kept[2] < 16
    assert estimates[2] <= 40 * 10**6 < estimates[1] <= estimates[0]


def test_too_small_memory_budget_raises_before_reading(urls: tuple[str, str]) -> None:
    refused = pytest.raises(
        InvalidArgumentError, match=r"memory_budget must be .* got 1,000,000: .* shuffle_buffer_bytes"
    )
    with make_batch_reader(urls[1], shuffle_rows=True, memory_budget=10**6) as reader, refused:
        reader.iter_batches(64)
    with pytest.raises(InvalidArgumentError, match="memory_budget"):
        make_reader(urls[0], memory_budget=0)


def test_memory_budget_error_advises_by_the_reader_options(urls: tuple[str, str]) -> None:
    def refusal(batch_size: int = 8, budget: int = 10**6, **options: Any) -> str:
        with make_batch_reader(urls[1], memory_budget=budget, workers_count=1, **options) as reader:
            with pytest.raises(InvalidArgumentError) as refused:
                reader.estimate_memory(batch_size)
            return str(refused.value).partition("; or ")[2]

    assert refusal(shuffle_row_groups=False).startswith("write row groups of fewer rows")
    assert "shuffle_buffer_bytes" not in refusal() + refusal(interleave=4) + refusal(batch_size=10**6, budget=10**8)
    assert "shuffle_buffer_bytes" in refusal(shuffle_rows=True)
    assert refusal(batch_size=10**6, budget=10**8).startswith("ask for smaller batches")


def test_memory_estimate_without_a_budget_shows_the_sum_of_its_parts(urls: tuple[str, str]) -> None:
    with make_reader(urls[1], shuffle_rows=True, workers_count=2) as reader:
        budget = reader.estimate_memory(64)
    assert str(budget).startswith("at most ")
    assert budget.total_bytes == budget.resident_bytes + budget.batch_bytes + budget.work_bytes
    assert budget.prefetched_bytes == 0  # local files are not prefetched
