"""Tests of `memory_budget` with variable-size values: spans are assembled in parts, and too large batches raise."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import NGram, TransformSpec, UnischemaField, make_batch_reader, make_mixed_reader, make_reader
from petastore.codecs import CompressedImageCodec, CompressedNdarrayCodec
from petastore.errors import DecodeError
from petastore.readers.reader import Reader
from tests import bombs
from tests.tier import IS_FULL, sized
from tests.warm_interpreters import WarmInterpreter

MB = 10**6
ARRAY = UnischemaField("a", np.uint8, (None,), CompressedNdarrayCodec())
SCAN = UnischemaField("a", np.uint8, (None, None, 3), CompressedImageCodec("png"))

READ = """
import json, sys
from petastore import make_reader
from tests.readers import memory_counters

small, url, size, options = *sys.argv[1:3], int(sys.argv[3]), json.loads(sys.argv[4])
with make_reader(small, workers_count=2) as reader:
    rows = sum(batch.num_rows for batch in reader.iter_batches(size))
memory_counters.begin()
rows, said = 0, ""
try:
    with make_reader(url, workers_count=2, **options) as reader:
        for batch in reader.iter_batches(size):
            rows += batch.num_rows
except ValueError as problem:
    said = str(problem)
print(json.dumps([memory_counters.most_taken(), memory_counters.grown_resident(), rows, said]))
"""


@pytest.fixture
def read(warm_python: WarmInterpreter, tmp_path: Path) -> Callable[..., tuple[int, int, int, str]]:
    """Return a function that reads cells in a subprocess: counted bytes, resident growth, rows and error message."""

    def read(
        field: UnischemaField, small: Any, cells: list[Any], batch_size: int, **options: Any
    ) -> tuple[int, int, int, str]:
        honest = bombs.write_cells(tmp_path / "small", field, [small] * 4)
        url = bombs.write_cells(tmp_path / "large", field, cells, rows_per_row_group=50)
        ran = warm_python.run(READ, honest, url, batch_size, json.dumps(options))
        assert ran.returncode == 0, ran.stderr
        taken, grown, rows, said = json.loads(ran.stdout)
        return taken, grown, rows, said

    return read


@pytest.mark.parametrize("shuffle", [False, True])
def test_compressed_arrays_of_4_mb_are_read_within_memory_budget(read: Any, shuffle: bool) -> None:
    cells = [bombs.npz(4 * MB)] * sized(full=300, quick=60)
    options = {"memory_budget": 150 * MB, "shuffle_rows": shuffle, "seed": 1}
    taken, grown, rows, said = read(ARRAY, bombs.npz(10), cells, 4, **options)
    assert (rows, said) == (len(cells), "")
    assert 10 * MB < taken <= 150 * MB
    assert not IS_FULL or grown <= 1.1 * 150 * MB


@pytest.mark.slow
def test_images_of_1_megapixel_are_read_within_memory_budget(read: Any) -> None:
    """The test measures resident memory, because no other counter includes the memory of image decoders."""
    cells = [bombs.png(1000, 1000)] * 100
    _, grown, rows, said = read(SCAN, bombs.png(8, 8), cells, 4, memory_budget=140 * MB)
    assert (rows, said) == (100, "")
    assert grown <= 1.1 * 140 * MB


@pytest.mark.parametrize("kind", ["npz", "png"])
def test_batch_above_memory_budget_raises_before_allocation(read: Any, kind: str) -> None:
    if kind == "npz":
        field, small, large = ARRAY, bombs.npz(10), bombs.npz(200_000_000)
    else:
        field, small, large = SCAN, bombs.png(8, 8), bombs.png(8192, 8192)
    taken, grown, rows, said = read(field, small, [small, large], 1, memory_budget=64 * MB)
    assert "column 'a', row 1 of row group 0 in part-0.parquet" in said
    assert "memory_budget=64,000,000" in said
    assert rows == 1  # the batch before it was returned
    assert taken <= 64 * MB
    assert not IS_FULL or grown <= 64 * MB


def sizes(reader: Reader, batch_size: int) -> list[list[int]]:
    return [
        [int(value.sum()) * 10**6 + len(value) for value in batch["a"]] for batch in reader.iter_batches(batch_size)
    ]


def unlike(count: int) -> Iterator[Any]:
    """Yield encoded cells of up to 2 MB, each of a different size."""
    random = np.random.RandomState(7)
    for number in range(count):
        value = np.zeros(int(2 * MB * random.rand() ** 8), np.uint8)
        value[:1] = number % 250
        yield ARRAY.codec.encode(ARRAY, value)  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a dataset of 300 arrays of 0 to 2 MB, most of them small."""
    return bombs.write_cells(tmp_path_factory.mktemp("unlike"), ARRAY, list(unlike(300)), rows_per_row_group=60)


OPTIONS: list[dict[str, Any]] = [
    {"seed": 1},
    {"shuffle_rows": True, "seed": 3},
    {"reader_pool_type": "dummy", "seed": 2},
    {"last_batch": "pad", "cur_shard": 1, "shard_count": 2},
    {"num_epochs": 2, "last_batch": "drop", "seed": 4},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_memory_budget_does_not_change_ragged_batches(url: str, options: dict[str, Any], batch_size: int) -> None:
    with make_reader(url, **{"workers_count": 2, **options}) as reader:
        expected = sizes(reader, batch_size)
    budget = 120 * MB
    with make_reader(url, **{"workers_count": 2, **options}, memory_budget=budget) as reader:
        assert sizes(reader, batch_size) == expected


def test_memory_budget_does_not_change_windows_and_mixtures(url: str) -> None:
    def doubled(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "a": np.concatenate([row["a"], row["a"]])}

    def all_of(**options: Any) -> Any:
        windows = NGram({0: ["id", "a"], 2: ["a"]}, delta_threshold=10, timestamp_field="id")
        with make_batch_reader(url, windows, workers_count=2, seed=1, **options) as reader:
            of_windows = [[len(a) for a in batch["a"].ravel()] for batch in reader.iter_batches(5)]
        with make_mixed_reader([url, url], [2, 1], seed=5, shuffle_rows=True, workers_count=2, **options) as reader:
            mixed = sizes(reader, 9)
        with make_reader(url, workers_count=2, seed=1, transform_spec=TransformSpec(doubled), **options) as reader:
            return of_windows, mixed, [len(row.a) for row in reader]

    assert all_of(memory_budget=200 * MB) == all_of()


def test_reader_with_memory_budget_resumes_after_any_batch(url: str) -> None:
    with make_reader(url, workers_count=1, seed=0) as reader:
        expected = sizes(reader, 4)
    for steps in range(0, 75, sized(full=6, quick=15)):
        with make_reader(url, workers_count=1, seed=0, memory_budget=80 * MB) as reader:
            batches = reader.iter_batches(4)
            for _ in range(steps):
                next(batches)
            state = reader.state_dict()
        with make_reader(url, workers_count=1, seed=0, memory_budget=80 * MB) as reader:
            reader.load_state_dict(state)
            assert sizes(reader, 4) == expected[steps:]


def test_memory_budget_does_not_change_single_ragged_rows(url: str) -> None:
    with make_reader(url, workers_count=2, seed=0, memory_budget=80 * MB) as reader:
        found = [len(row.a) for row in reader]
    with make_reader(url, workers_count=2, seed=0) as reader:
        assert [len(row.a) for row in reader] == found


def test_reader_with_memory_budget_can_be_stopped_mid_batch(url: str) -> None:
    with make_reader(url, workers_count=2, memory_budget=64 * MB) as reader:
        batches = reader.iter_batches(4)
        next(batches)
        reader.stop()
        assert reader.stopped


def test_memory_budget_error_names_file_row_group_and_row_of_largest_cell(tmp_path: Path) -> None:
    cells = [bombs.npz(size * MB) for size in (1, 1, 2, 1, 90, 1)]
    url = bombs.write_cells(tmp_path, ARRAY, cells, rows_per_row_group=2)
    options: dict[str, Any] = {"workers_count": 1, "memory_budget": 100 * MB, "shuffle_row_groups": False}
    with make_reader(url, **options) as reader, pytest.raises(DecodeError) as refused:
        list(reader.iter_batches(3))
    error = refused.value
    assert (error.column, error.file, error.row_group, error.row) == ("a", "part-0.parquet", 2, 0)
    assert "in 3 rows, of which this cell takes" in str(error)
    assert "memory_budget=100,000,000" in str(error)
    windows = NGram({0: ["a"], 1: ["a"]}, delta_threshold=1, timestamp_field="id")
    with make_reader(url, windows, **options) as reader, pytest.raises(DecodeError) as refused:
        list(reader)
    assert "in 2 rows, of which this cell takes" in str(refused.value)
    assert (refused.value.row_group, refused.value.row) == (2, 0)
