"""Columns of even cells are written to several files at a time, and the files are those that one thread writes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec
from petastore.dataset import open_dataset
from petastore.errors import EncodeError
from petastore.schema import Unischema, UnischemaField
from petastore.storage.files.location import open_location
from petastore.writers.layout import Layout
from petastore.writers.local import write_dataset
from petastore.writers.parallel_files import has_even_cells
from tests.pace import patience
from tests.writers.conftest import everything_in

SCHEMA = Unischema("x", [UnischemaField("id", "int64"), UnischemaField("x", "float32", (16, 16), NdarrayCodec())])
ROW_BYTES = 8 + 4 + 128 + 16 * 16 * 4


def columns(rows: int) -> dict[str, Any]:
    return {"id": np.arange(rows), "x": np.random.default_rng(0).random((rows, 16, 16), np.float32)}


def groups_at(url: Path) -> list[list[pa.Table]]:
    """Of each file, in the order of the manifest, its row groups."""
    files = [pq.ParquetFile(url / file.path) for file in open_dataset(url).inventory.files]
    return [[file.read_row_group(group) for group in range(file.num_row_groups)] for file in files]


def ids_of(files: list[list[pa.Table]]) -> list[int]:
    return [number for file in files for group in file for number in group["id"].to_pylist()]


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group has 20 rows, and a file 60."""

    def of(**asked: Any) -> Layout:
        return Layout(asked["rows_per_row_group"], 20 * ROW_BYTES, asked["rows_per_file"], file_bytes=50 * ROW_BYTES)

    monkeypatch.setattr(Layout, "of", of)


@given(
    rows=st.integers(0, 60), per_group=st.integers(1, 20), per_file=st.integers(1, 40), as_table=st.booleans(),
    threads=st.integers(1, 3),
)  # fmt: skip
def test_files_are_those_that_one_thread_writes(
    tmp_path_factory: pytest.TempPathFactory, rows: int, per_group: int, per_file: int, as_table: bool, threads: int
) -> None:
    folder = tmp_path_factory.mktemp("side")
    schema = Unischema("x", [UnischemaField("id", "int64"), UnischemaField("y", "float32")])
    data: Any = {"id": np.arange(rows), "y": np.arange(rows, dtype=np.float32)}
    data = pa.table(data) if as_table else data
    sizes: dict[str, Any] = {"rows_per_row_group": per_group, "rows_per_file": per_file}
    write_dataset(folder / "one", schema, data, **sizes, workers_count=0)
    write_dataset(folder / "several", schema, data, **sizes, workers_count=threads)
    stream = pa.RecordBatchReader.from_batches(pa.table(data).schema, pa.table(data).to_batches())
    write_dataset(folder / "stream", schema, stream, **sizes, workers_count=0)  # the way without numbers of rows
    expected = groups_at(folder / "stream")
    assert groups_at(folder / "one") == groups_at(folder / "several") == expected
    assert ids_of(expected) == list(range(rows))


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("rows", [1, 20, 59, 60, 61, 180, 250])
def test_a_file_has_the_row_groups_that_fill_it(tmp_path: Path, rows: int) -> None:
    write_dataset(tmp_path / "x", SCHEMA, columns(rows), workers_count=2)
    found = groups_at(tmp_path / "x")
    assert [sum(map(len, file)) for file in found] == [min(60, rows - start) for start in range(0, rows, 60)]
    assert all(len(group) == 20 for file in found for group in file[:-1])
    table = pa.concat_tables(group for file in found for group in file)
    assert table["id"].to_pylist() == list(range(rows))
    cells = [NdarrayCodec().encode(SCHEMA["x"], value) for value in columns(rows)["x"]]
    assert table["x"].to_pylist() == cells
    numbers = [path.name.split("-")[1] for path in sorted((tmp_path / "x").glob("part-*"))]
    assert numbers == [f"{number:05d}" for number in range(len(found))]


class Met(np.ndarray[Any, Any]):
    """Rows of which two parts are only to be had together."""

    barrier: threading.Barrier

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice) and key.start in (60, 120):
            self.barrier.wait(patience(30))
        return super().__getitem__(key)


@pytest.mark.usefixtures("small_files")
def test_two_files_are_written_at_a_time(tmp_path: Path) -> None:
    data = columns(180)
    values = data["x"].view(Met)
    values.barrier = threading.Barrier(2)
    write_dataset(tmp_path / "x", SCHEMA, {**data, "x": values}, workers_count=2)
    assert len(groups_at(tmp_path / "x")) == 3


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("threads", [0, 3])
def test_of_values_that_do_not_fit_the_first_is_named_and_nothing_stays(tmp_path: Path, threads: int) -> None:
    ids = np.arange(300, dtype=np.int64)
    ids[[130, 270]] = 2**40
    schema = Unischema("x", [UnischemaField("id", "int32"), SCHEMA["x"]])
    with pytest.raises(EncodeError, match="column 'id', row 130"):
        write_dataset(tmp_path / "x", schema, {**columns(300), "id": ids}, workers_count=threads)
    assert everything_in(open_location(tmp_path / "x")) == []


@pytest.mark.usefixtures("small_files")
def test_progress_counts_all_rows_and_rows_are_appended(tmp_path: Path) -> None:
    told: list[int] = []
    for _ in range(2):
        write_dataset(tmp_path / "x", SCHEMA, columns(130), mode="append", progress=told.append, workers_count=2)
    assert sorted(told[:7]) == told[:7]
    assert told[6] == told[13] == 130
    assert ids_of(groups_at(tmp_path / "x")) == [*range(130)] * 2


@pytest.mark.usefixtures("small_files")
def test_what_shrinks_ends_a_file_by_its_stored_bytes(tmp_path: Path) -> None:
    zeros = {"id": np.arange(300), "x": np.zeros((300, 16, 16), np.float32)}
    write_dataset(tmp_path / "x", SCHEMA, zeros, workers_count=2)
    assert len(groups_at(tmp_path / "x")) == 1


def test_cells_are_even_where_a_schema_says_their_size_and_a_copy_makes_them() -> None:
    uneven = [
        UnischemaField("x", str), UnischemaField("x", "float32", (None,)), UnischemaField("x", "int8", nullable=True),
        UnischemaField("x", "float32", (2, 2), CompressedNdarrayCodec()),
    ]  # fmt: skip
    assert has_even_cells(SCHEMA)
    assert not any(has_even_cells(Unischema("x", [SCHEMA["id"], field])) for field in uneven)
