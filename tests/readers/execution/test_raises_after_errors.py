"""After an error readers and loaders raise again: `StopIteration` would look like the end of the epoch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch.utils.data

import petastore
from petastore.adapters.torch import BatchedDataLoader, DataLoader, ReaderDataset
from petastore.errors import ReaderClosedError, TransformError

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
def test_loop_raises_again_after_an_error(
    reader: petastore.Reader, begin: Callable[[petastore.Reader], Iterator[Any]]
) -> None:
    items = begin(reader)
    with pytest.raises(TransformError, match="a broken row"):
        list(items)
    for _ in range(2):
        with pytest.raises(ReaderClosedError, match=r"ended with TransformError: .*a broken row"):
            next(items)


def test_reader_continues_after_an_error_with_the_rows_that_follow(url: str) -> None:
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


def test_batch_that_cannot_be_made_is_not_left_out(reader: petastore.Reader) -> None:
    def refuse(column: Any) -> Any:
        raise ValueError("no such column")

    batches = iter(BatchedDataLoader(reader, 10, refuse))
    with pytest.raises(ValueError, match="no such column"):
        next(batches)
    with pytest.raises(ReaderClosedError, match="ended with ValueError: no such column"):
        next(batches)


@pytest.mark.parametrize("batch_size", [10, None])
def test_dataset_of_torch_raises_again_after_an_error(url: str, batch_size: int | None) -> None:
    dataset = ReaderDataset(url, batch_size=batch_size, transform_spec=SPEC, shuffle_row_groups=False)
    for items in (iter(dataset), iter(torch.utils.data.DataLoader(dataset, batch_size=None))):
        with pytest.raises(TransformError, match="a broken row"):
            list(items)
        with pytest.raises(ReaderClosedError, match="ended with TransformError"):
            next(items)


def test_workers_of_torch_raise_again_after_an_error(url: str) -> None:
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
    gc.collect()  # torch leaves the error of a worker in a cycle, with the frame that knows the workers
