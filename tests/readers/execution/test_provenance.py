"""`provenance=True`: each row of a batch says from which file, row group and row of it it comes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import petastore
from petastore import NGram, TransformSpec, col, make_batch_reader, make_reader
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """Four files of three row groups of ten rows, the last of fewer."""
    petastore.write_dataset(
        tmp_path / "data", {"id": np.arange(105), "half": np.arange(105) / 2}, rows_per_row_group=10, rows_per_file=30
    )
    return tmp_path / "data"


def stored_at(url: Path) -> Callable[[str, int, int], int]:
    """The id that a place of the files holds."""

    def stored(file: str, row_group: int, row: int) -> int:
        return int(pq.ParquetFile(url / file).read_row_group(row_group)["id"][row].as_py())

    return stored


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle_rows": True, "seed": 7},
        {"filters": col("id") > 31},
        {"shuffle_rows": True, "seed": 7, "cur_shard": 1, "shard_count": 3, "num_epochs": 2, "last_batch": "pad"},
        {"predicate": lambda row: row["id"] % 3 == 0},
        {"transform_spec": TransformSpec(lambda row: {**row, "half": -row["half"]})},
    ],
    ids=["plain", "shuffled", "filtered", "sharded", "predicate", "transformed"],
)
def test_provenance_names_the_place_of_each_row(url: Path, options: dict[str, Any]) -> None:
    stored = stored_at(url)
    with make_reader(str(url), provenance=True, filter_cache=False, **options) as reader:
        assert list(reader.schema.fields)[-3:] == ["source_file", "source_row_group", "source_row"]
        rows = 0
        for batch in reader.iter_batches(8):
            rows += batch.num_rows
            places = zip(batch["source_file"], batch["source_row_group"], batch["source_row"], strict=True)
            assert [stored(*place) for place in places] == batch["id"].tolist()
    assert rows > 0


def halved(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"]}


def test_provenance_comes_with_rows_loaders_and_processes(url: Path) -> None:
    stored = stored_at(url)
    with make_reader(str(url), provenance=True) as reader:
        row = next(reader)
        assert stored(row.source_file, row.source_row_group, row.source_row) == row.id
    spec = TransformSpec(halved, removed_fields=["half"])
    with make_batch_reader(
        str(url), provenance=True, transform_spec=TransformSpec(halved, removed_fields=["half"], takes="row"),
        reader_pool_type="process", workers_count=1,
    ) as reader:  # fmt: skip
        batch = next(reader)
        assert stored(batch.source_file[3], batch.source_row_group[3], batch.source_row[3]) == batch.id[3]
    with make_reader(str(url), provenance=True, transform_spec=spec) as reader:
        tensors = next(iter(DataLoader(reader, batch_size=5)))
    places = [tensors[name][2] for name in ("source_file", "source_row_group", "source_row")]
    assert stored(*places) == tensors["id"][2]


def test_provenance_leaves_order_and_state_alone(url: Path) -> None:
    with make_reader(str(url), shuffle_rows=True, seed=3) as plain:
        ids = [batch["id"].tolist() for batch in plain.iter_batches(10)]
    with make_reader(str(url), shuffle_rows=True, seed=3) as plain:
        first = next(plain.iter_batches(10))["id"].tolist()
        state = plain.state_dict()
    with make_reader(str(url), shuffle_rows=True, seed=3, provenance=True) as reader:
        reader.load_state_dict(state)
        assert [first, *(batch["id"].tolist() for batch in reader.iter_batches(10))] == ids


def test_provenance_rejects_columns_of_its_names_and_windows(url: Path, tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "taken", {"source_row": [1]})
    with pytest.raises(InvalidArgumentError, match="column 'source_row', which it would add"):
        make_reader(str(tmp_path / "taken"), provenance=True)
    with pytest.raises(InvalidArgumentError, match="provenance must be False where an NGram is read"):
        make_reader(str(url), NGram({0: ["id"], 1: ["id"]}, 1, "id"), provenance=True)
