"""Tests that readers and loaders raise again after an error: `StopIteration` would look like the end of the epoch."""

from __future__ import annotations

import gc
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch.utils.data
from fsspec.implementations.memory import MemoryFileSystem

import petastore
from petastore.adapters.torch import BatchedDataLoader, DataLoader, ReaderDataset
from petastore.errors import PetastoreError, ReaderClosedError, TransformError
from tests.tier import sized

ROWS, BROKEN = 200, 77


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("errors") / "numbers"
    schema = petastore.Unischema("numbers", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(folder, schema, ({"id": i} for i in range(ROWS)), rows_per_row_group=20)
    return str(folder)


def break_at(row: dict[str, Any]) -> dict[str, Any]:
    if row["id"] == BROKEN:
        raise ValueError("a broken row")
    return row


SPEC = petastore.TransformSpec(break_at)


@pytest.fixture
def reader(url: str) -> Iterator[petastore.Reader]:
    with petastore.make_reader(url, transform_spec=SPEC, shuffle_row_groups=False) as opened:
        yield opened


LOOPS: list[Callable[[petastore.Reader], Iterator[Any]]] = [
    iter,
    lambda reader: reader.iter_batches(10),
    lambda reader: iter(DataLoader(reader, 10)),
    lambda reader: iter(DataLoader(reader, 10, device="cpu")),
    lambda reader: iter(DataLoader(reader, 10).dataset),
    lambda reader: iter(BatchedDataLoader(reader, 10, lambda column: column + 1)),
]
NAMES = ["rows", "batches", "loader", "loader to a device", "rows of a loader", "batched loader"]


@pytest.mark.parametrize("begin", LOOPS, ids=NAMES)
def test_iterator_raises_again_after_a_transform_error(
    reader: petastore.Reader, begin: Callable[[petastore.Reader], Iterator[Any]]
) -> None:
    items = begin(reader)
    with pytest.raises(TransformError, match="a broken row"):
        list(items)
    for _ in range(2):
        with pytest.raises(ReaderClosedError, match=r"ended with TransformError: .*a broken row"):
            next(items)


def test_reader_resumes_from_its_own_state_after_a_transform_error(url: str) -> None:
    failures = [BROKEN]

    def once(row: dict[str, Any]) -> dict[str, Any]:
        if failures and row["id"] == failures[0]:
            failures.clear()
            raise ValueError("a broken row")
        return row

    seen = []
    with petastore.make_reader(url, transform_spec=petastore.TransformSpec(once), shuffle_row_groups=False) as reader:
        with pytest.raises(TransformError):
            seen += [row.id for row in reader]
        with pytest.raises(ReaderClosedError):
            next(reader)
        before = reader.state_dict()["position"]
        reader.load_state_dict(reader.state_dict())
        seen += [row.id for row in reader]
    assert seen == list(range(before, ROWS))


def test_batched_dataloader_raises_again_after_a_failed_transform(reader: petastore.Reader) -> None:
    def refuse(column: Any) -> Any:
        raise ValueError("no such column")

    batches = iter(BatchedDataLoader(reader, 10, refuse))
    with pytest.raises(ValueError, match="no such column"):
        next(batches)
    with pytest.raises(ReaderClosedError, match="ended with ValueError: no such column"):
        next(batches)


@pytest.mark.parametrize("batch_size", [10, None])
def test_torch_dataset_raises_again_after_an_error(url: str, batch_size: int | None) -> None:
    dataset = ReaderDataset(url, batch_size=batch_size, transform_spec=SPEC, shuffle_row_groups=False)
    for items in (iter(dataset), iter(torch.utils.data.DataLoader(dataset, batch_size=None))):
        with pytest.raises(TransformError, match="a broken row"):
            list(items)
        with pytest.raises(ReaderClosedError, match="ended with TransformError"):
            next(items)


def test_torch_workers_raise_again_after_an_error(url: str) -> None:
    dataset = ReaderDataset(url, batch_size=10, transform_spec=SPEC, shuffle_row_groups=False)
    items = iter(torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=1))
    errors = []
    for _ in range(ROWS):
        try:
            next(items)
        except StopIteration:
            break
        except (TransformError, ReaderClosedError) as problem:
            errors.append(type(problem))
            if len(errors) == 2:
                break
    assert errors == [TransformError, ReaderClosedError]
    del items
    gc.collect()  # torch leaves a worker's error in a reference cycle, with the frame that holds the workers


def test_rewritten_file_error_with_disk_cache_logs_no_callback_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Loads in progress when a file turns out to be rewritten end without tracebacks from their callbacks."""
    store, failed = MemoryFileSystem(), 0

    def write(version: float) -> None:
        for number in range(8):
            content = io.BytesIO()
            columns = {"id": np.arange(400), "v": np.full(400, version), "x": np.random.default_rng(0).random(400)}
            pq.write_table(pa.table(columns), content, row_group_size=20)
            store.pipe_file(f"/rewritten/{number}.parquet", content.getvalue())

    for attempt in range(sized(full=30, quick=5)):
        write(attempt)
        options: dict[str, Any] = {"seed": attempt, "shuffle_rows": bool(attempt % 2), "workers_count": 2}
        cache: dict[str, Any] = {
            "cache_type": "local-disk",
            "cache_location": tmp_path / f"{attempt}",
            "cache_size_limit": 300_000,
        }
        with petastore.make_batch_reader("memory://rewritten", **options, **cache) as reader:
            for count, _ in enumerate(batches := reader.iter_batches(64)):
                if count == attempt % 5:
                    write(attempt + 0.5)
                    break
            try:
                list(batches)
            except PetastoreError:
                failed += 1
    store.rm("/rewritten", recursive=True)
    assert failed
    assert not [record for record in caplog.records if record.name == "concurrent.futures"]
