"""Tests of `column_bytes`: sizes equal the column chunks in the files, and make `explain` exact."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader, open_dataset
from petastore.errors import DatasetChangedError, InvalidArgumentError
from petastore.readers.fetches import column_bytes


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Write two files with row groups of 100 rows; `day` is a partition column, and `box` has two leaf columns."""
    for day, rows in (("a", 250), ("b", 100)):
        (tmp_path / "data" / f"day={day}").mkdir(parents=True)
        boxes = [{"x": number, "y": [number] * (number % 3)} for number in range(rows)]
        table = pa.table({"id": range(rows), "name": [f"row {n:020}" for n in range(rows)], "box": boxes})
        pq.write_table(table, tmp_path / "data" / f"day={day}" / "part.parquet", row_group_size=100)
    return str(tmp_path / "data")


def in_files(url: str, columns: set[str]) -> list[int]:
    sizes = []
    for path in sorted(Path(url).glob("*/*.parquet")):
        footer = pq.read_metadata(path)
        for group in (footer.row_group(number) for number in range(footer.num_row_groups)):
            chunks = [group.column(leaf) for leaf in range(group.num_columns)]
            own = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
            sizes.append(sum(chunk.total_compressed_size for chunk in own))
    return sizes


@pytest.mark.parametrize(
    "columns",
    [{"id"}, {"box"}, {"id", "name"}, {"id", "name", "box"}, set()],
    ids=lambda names: " ".join(sorted(names)),
)
def test_column_bytes_equal_the_chunk_sizes_in_the_files(url: str, columns: set[str]) -> None:
    found = column_bytes(open_dataset(url), columns)
    assert found.tolist() == in_files(url, columns)
    if len(columns) == 3:
        assert np.array_equal(found, open_dataset(url).inventory.stored_bytes)


def test_column_bytes_of_partition_columns_are_zero(url: str) -> None:
    assert column_bytes(open_dataset(url), ["day"]).tolist() == [0] * 4
    assert column_bytes(open_dataset(url), ["day", "id"]).tolist() == in_files(url, {"id"})


def test_explain_with_column_bytes_counts_only_selected_columns(url: str) -> None:
    with make_batch_reader(url, ["id"]) as reader:
        plan = reader.plan
        known = plan.explain(10, column_bytes=column_bytes(open_dataset(url), plan.request.columns))
        assert known.bytes_to_fetch == sum(in_files(url, {"id"})) < plan.explain(10).bytes_to_fetch
        assert known.bytes_of == "columns"


def test_column_bytes_raises_for_unknown_columns(url: str) -> None:
    dataset = open_dataset(url)
    with pytest.raises(InvalidArgumentError, match=r"columns must be .* \('id', 'name', 'box', 'day'\), got 'z'"):
        column_bytes(dataset, ["id", "z"])


def test_column_bytes_raises_for_a_rewritten_file(url: str) -> None:
    dataset = open_dataset(url)
    path = Path(url) / "day=a" / "part.parquet"
    pq.write_table(pq.read_table(path).slice(1), path, row_group_size=100)
    with pytest.raises(DatasetChangedError, match=r"part\.parquet"):
        column_bytes(dataset, ["id"])
