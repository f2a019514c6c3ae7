"""Tests of random access: same rows as an unshuffled reader, one read per row group and call, errors, threads, fork."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import petastore
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.dataset import Dataset
from petastore.errors import DecodeError, InvalidArgumentError, TransformError
from petastore.plan.selection import Selection
from petastore.readers.random_access import RandomAccess
from tests.forked import answer_of_child
from tests.pace import LONG
from tests.readers.hanging import HangingFileSystem
from tests.tier import examples

FIELDS = [
    petastore.UnischemaField("id", "int32"),
    petastore.UnischemaField("flag", "bool"),
    petastore.UnischemaField("at", "datetime64[us]"),
    petastore.UnischemaField("name", str, nullable=True),
    petastore.UnischemaField("price", Decimal),
    petastore.UnischemaField("age", "float32", nullable=True),
    petastore.UnischemaField("image", "uint8", (4, 6, 3), CompressedImageCodec("png")),
    petastore.UnischemaField("matrix", "float32", (2, 3), NdarrayCodec()),
    petastore.UnischemaField("free", "float64", (None, 2), NdarrayCodec()),
]
PARTS = [(12, 5), (1, 1), (30, 30), (7, 2)]  # rows of each file, and of each of its row groups
ROWS = sum(rows for rows, _ in PARTS)


def row(i: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {
        "id": i,
        "flag": i % 2 == 0,
        "at": np.datetime64(i, "s").astype("datetime64[us]"),
        "name": None if i % 7 == 2 else f"n{i}",
        "price": Decimal(i) / 4,
        "age": None if i % 10 == 3 else i,
        "image": np.full((4, 6, 3), i, np.uint8),
        "matrix": np.full((2, 3), i, np.float32),
        "free": np.full((i % 3, 2), i, np.float64),
    }


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    url, first = str(tmp_path_factory.mktemp("random") / "data"), 0
    for rows, group in PARTS:
        mode: Any = "append" if first else "error"
        part = [row(i) for i in range(first, first + rows)]
        petastore.write_dataset(url, petastore.Unischema("row", FIELDS), part, mode=mode, rows_per_row_group=group)
        first += rows
    return petastore.open_dataset(url)


class Rows(list[dict[str, Any]]):
    """Rows with a short repr, so that Hypothesis does not print them."""

    def __repr__(self) -> str:
        return f"{len(self)} rows"


@pytest.fixture(scope="module")
def in_order(dataset: Dataset) -> Rows:
    """Return the rows of an unshuffled reader."""
    with petastore.make_reader(dataset.url, shuffle_row_groups=False) as reader:
        return Rows(row._asdict() for row in reader)


def taken_rows(columns: dict[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return columns as rows, with None for missing values."""
    values = {name: [None if cell is np.ma.masked else cell for cell in column] for name, column in columns.items()}
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def same(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return list(found) == list(wanted) and all(
        np.array_equal(found[name], wanted[name])
        and getattr(found[name], "dtype", None) == getattr(wanted[name], "dtype", None)
        for name in wanted
    )


def test_random_access_equals_an_unshuffled_reader(dataset: Dataset, in_order: Rows) -> None:
    rows = RandomAccess(dataset)
    assert len(rows) == len(in_order) == ROWS
    for number, wanted in enumerate(in_order):
        (found,) = taken_rows(rows.take([number]))
        assert same(found, wanted), number


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(50))
@given(numbers=st.lists(st.integers(-ROWS, ROWS - 1), max_size=30), cache_bytes=st.integers(0, 20_000))
def test_random_access_keeps_the_requested_order(
    dataset: Dataset, in_order: Rows, numbers: list[int], cache_bytes: int
) -> None:
    rows = RandomAccess(dataset, cache_bytes=cache_bytes)
    found = taken_rows(rows.take(numbers))
    assert len(found) == len(numbers)
    for number, one in zip(numbers, found, strict=True):
        assert same(one, in_order[number])
    needed = set(np.searchsorted(np.cumsum(dataset.inventory.rows), np.array(numbers) % ROWS, side="right").tolist())
    assert rows.cache_info().reads == len(needed)


@pytest.mark.parametrize("number", [ROWS, -ROWS - 1, 10**12])
def test_random_access_out_of_range_raises(dataset: Dataset, number: int) -> None:
    with pytest.raises(IndexError, match=rf"at least -{ROWS} and below {ROWS}, the rows of .*, got {number:,}"):
        RandomAccess(dataset).take([0, number])


def test_random_access_requires_ints(dataset: Dataset) -> None:
    with pytest.raises(TypeError, match="row numbers must be ints, got float64"):
        RandomAccess(dataset).take([0.5])


@pytest.mark.parametrize("numbers", [[[1, 2]], [[1, 2], [3]], np.zeros((2, 2), np.int64)])
def test_random_access_rejects_nested_row_numbers(dataset: Dataset, numbers: Any) -> None:
    with pytest.raises(petastore.errors.InvalidArgumentError, match="numbers must be a list of row numbers, such as"):
        RandomAccess(dataset).take(numbers)


def test_random_access_to_an_empty_dataset_raises(tmp_path: Path) -> None:
    petastore.write_dataset(str(tmp_path / "none"), petastore.Unischema("row", FIELDS), [])
    rows = RandomAccess(petastore.open_dataset(str(tmp_path / "none")))
    assert len(rows) == 0
    with pytest.raises(IndexError):
        rows.take([0])


def test_random_access_numbers_only_selected_rows(dataset: Dataset, in_order: Rows) -> None:
    kept = [np.array([one % 3 == 1 for one in range(rows)]) for rows in dataset.inventory.rows.tolist()]
    selection = Selection(np.array([one.sum() for one in kept]), dict(enumerate(kept)))
    rows = RandomAccess(dataset, ["id"], selection=selection)
    wanted = [one["id"] for one, is_kept in zip(in_order, np.concatenate(kept), strict=True) if is_kept]
    assert len(rows) == len(wanted)
    assert rows.take(range(len(rows)))["id"].tolist() == wanted
    assert rows.take([-1])["id"].tolist() == wanted[-1:]


def test_selection_of_another_dataset_raises(dataset: Dataset) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"selection must be made from this version of.*with 9 row groups, got one of 1\. Call select_rows",
    ):
        RandomAccess(dataset, selection=Selection(np.array([3]), {}))


def test_random_access_reads_partition_columns(tmp_path: Path) -> None:
    for day, ids in {"a": [1, 2], "b": [3]}.items():
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": ids}), tmp_path / f"day={day}" / "part.parquet")
    opened = petastore.open_dataset(str(tmp_path))
    both = RandomAccess(opened).take([2, 0])
    assert (both["id"].tolist(), both["day"].tolist()) == ([3, 1], ["b", "a"])
    only = RandomAccess(opened, ["day"])
    assert only.take([2, 0, 1])["day"].tolist() == ["b", "a", "a"]
    assert only.cache_info().reads == 0


def test_random_access_applies_the_transform_each_time(dataset: Dataset) -> None:
    calls: list[int] = []

    def twice(values: dict[str, Any]) -> dict[str, Any]:
        calls.append(int(values["id"]))
        return {"twice": values["id"] * 2.0}

    spec = petastore.TransformSpec(twice, edit_fields=[("twice", np.float64, (), False)], selected_fields=["twice"])
    rows = RandomAccess(dataset, ["id"], transform=spec)
    assert list(rows.schema.fields) == ["twice"]
    ids = RandomAccess(dataset, ["id"]).take([4, 0, 4])["id"]
    assert rows.take([4, 0, 4])["twice"].tolist() == (2.0 * ids).tolist()
    assert calls == ids.tolist()


def test_random_access_reports_transform_errors(dataset: Dataset) -> None:
    rows = RandomAccess(dataset, ["id"], transform=petastore.TransformSpec(lambda values: values["nothing"]))
    with pytest.raises(TransformError, match="KeyError"):
        rows.take([0])


def test_random_access_names_a_damaged_cell(tmp_path: Path) -> None:
    field = petastore.UnischemaField("image", "uint8", (2, 2), CompressedImageCodec("png"))
    url = str(tmp_path / "images")
    images = [{"image": np.full((2, 2), i, np.uint8)} for i in range(6)]
    petastore.write_dataset(url, petastore.Unischema("images", [field]), images, rows_per_row_group=3)
    (file,) = Path(url).glob("*.parquet")
    table = pq.read_table(file)
    cells = table.column("image").to_pylist()
    with pq.ParquetWriter(file, table.schema) as writer:
        writer.write_table(pa.table({"image": [*cells[:4], b"no png", cells[5]]}, schema=table.schema), 3)
    rows = RandomAccess(petastore.open_dataset([str(file)]))
    with pytest.raises(DecodeError) as caught:
        rows.take([5, 0, 4])
    assert (caught.value.column, caught.value.row_group, caught.value.row) == ("image", 1, 1)
    assert caught.value.file == file.name


def test_random_access_is_thread_safe(dataset: Dataset, in_order: Rows) -> None:
    rows = RandomAccess(dataset, ["id", "image"], cache_bytes=2000)
    begin = threading.Barrier(4)
    wrong: list[int] = []

    def take(seed: int) -> None:
        begin.wait(LONG)
        for numbers in np.random.default_rng(seed).integers(0, ROWS, (30, 7)):
            found = rows.take(numbers)
            wanted = [in_order[number]["id"] for number in numbers]
            if found["id"].tolist() != wanted or found["image"][:, 0, 0, 0].tolist() != wanted:
                wrong.append(seed)

    threads = [threading.Thread(target=take, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not wrong


def test_pickled_random_access_excludes_cached_row_groups(dataset: Dataset) -> None:
    rows = RandomAccess(dataset, ["id"], cache_bytes=12_345)
    before = rows.take([3, 9])["id"].tolist()
    again = pickle.loads(pickle.dumps(rows))  # noqa: S301 - our own
    assert again.cache_info() == dataclasses.replace(rows.cache_info(), hits=0, reads=0, row_groups=0, held_bytes=0)
    assert again.take([3, 9])["id"].tolist() == before


def test_random_access_works_in_a_child_forked_during_a_read(dataset: Dataset) -> None:
    storage = HangingFileSystem()
    path = dataset.url.removeprefix("file://")
    rows = RandomAccess(petastore.open_dataset(path, filesystem=storage), ["id"])
    taken: list[list[int]] = []
    storage.at = "read"
    thread = threading.Thread(target=lambda: taken.append(rows.take([3, 9])["id"].tolist()))
    thread.start()
    assert storage.hangs.wait(LONG)

    def take() -> tuple[list[int], int]:
        storage.at = None
        return rows.take([3, 9])["id"].tolist(), rows.cache_info().reads

    try:
        found, reads = answer_of_child(take)
    finally:
        storage.answer.set()
        thread.join()
    assert [found] == taken
    assert reads == 2
