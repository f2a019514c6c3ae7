"""Tests of readers on the faulty filesystem: correct rows or a petastore error, never wrong rows."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import petastore
from petastore.errors import DatasetChangedError, InvalidArgumentError, PetastoreError, StorageTimeoutError
from petastore.testing.faults import Faults, FaultyFileSystem

ROWS, FILES = 300, 6
FOLDER = "/files-with-faults"


@pytest.fixture(scope="module")
def memory() -> Iterator[Any]:
    """Yield an in-memory filesystem with fixed file names, so that faults are the same in every run."""
    files = MemoryFileSystem()
    noise = np.random.default_rng(0).random(ROWS)
    for number in range(FILES):
        rows = slice(number * ROWS // FILES, (number + 1) * ROWS // FILES)
        table = pa.table({"id": range(rows.start, rows.stop), "noise": noise[rows]})
        with files.open(f"{FOLDER}/{number}.parquet", "wb") as file:
            pq.write_table(table, file, write_page_checksum=True)
    yield files
    files.rm(FOLDER, recursive=True)


def ids(files: FaultyFileSystem) -> list[int]:
    with petastore.make_batch_reader(FOLDER, filesystem=files, seed=1, shuffle_rows=True) as reader:
        return [int(number) for batch in reader.iter_batches(32) for number in batch["id"]]


@pytest.mark.parametrize("faults", [Faults(slow=0.5, slow_s=0.01), Faults(throttled=0.2), Faults(failed=0.2)], ids=str)
def test_transient_faults_of_faulty_file_system_are_retried(memory: Any, faults: Faults) -> None:
    files = FaultyFileSystem(faults, memory, seed=3)
    assert ids(files) == ids(FaultyFileSystem(filesystem=memory))
    assert sum(files.counts.values()) > files.counts["none"]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("faults", [Faults(short=0.3), Faults(flipped=0.3), Faults(changed=0.3)], ids=str)
def test_damaged_responses_give_the_same_rows_or_raise(memory: Any, faults: Faults, seed: int) -> None:
    expected = ids(FaultyFileSystem(filesystem=memory))
    with contextlib.suppress(PetastoreError):
        assert ids(FaultyFileSystem(faults, memory, seed=seed)) == expected


def test_file_changed_while_reading_raises(memory: Any) -> None:
    files = FaultyFileSystem(filesystem=memory)
    with petastore.make_reader(FOLDER, filesystem=files, workers_count=1) as reader:
        files.faults = Faults(changed=1)
        with pytest.raises(DatasetChangedError):
            list(reader)


def test_hanging_request_times_out_and_is_released(memory: Any) -> None:
    files = FaultyFileSystem(filesystem=memory)
    dataset = petastore.open_dataset(FOLDER, filesystem=files, storage_timeout=0.5)
    files.faults = Faults(hung=1)
    with (
        petastore.make_reader(dataset) as reader,
        pytest.raises(StorageTimeoutError),
    ):
        list(reader)
    files.release()
    assert files.counts["hung"]


def test_faults_depend_on_seed_and_request_and_not_on_threads(memory: Any) -> None:
    def counts(seed: int) -> dict[str, int]:
        files = FaultyFileSystem(Faults(slow=0.5, slow_s=0), memory, seed)

        def read() -> None:
            for offset in range(50):
                files.cat_file(f"{FOLDER}/0.parquet", offset, offset + 1)

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return dict(files.counts)

    assert counts(1) == counts(1) != counts(2)


def test_fault_probabilities_above_1_in_sum_raise() -> None:
    with pytest.raises(InvalidArgumentError, match=r"together at most 1, got slow=0\.7, failed=0\.7"):
        Faults(slow=0.7, failed=0.7)
