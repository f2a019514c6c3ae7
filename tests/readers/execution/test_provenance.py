"""Tests of `provenance=True`: each row of a batch has its file, row group and row number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import petastore
from petastore import NGram, TransformSpec, WeightedSamplingReader, col, make_batch_reader, make_reader
from petastore.adapters.torch import DataLoader, MapDataset, ReaderDataset, decimal_friendly_collate
from petastore.errors import InvalidArgumentError
from tests.readers import transforms_to_send as sent


@pytest.fixture
def url(tmp_path: Path) -> Path:
    """Write four files of up to three row groups of ten rows; the last row group has five."""
    petastore.write_dataset(
        tmp_path / "data", {"id": np.arange(105), "half": np.arange(105) / 2}, rows_per_row_group=10, rows_per_file=30
    )
    return tmp_path / "data"


def stored_at(url: Path) -> Callable[[str, int, int], int]:
    """Return a function that reads the id stored at a file, row group and row."""

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
def test_provenance_has_file_row_group_and_row_of_each_row(url: Path, options: dict[str, Any]) -> None:
    stored = stored_at(url)
    with make_reader(str(url), provenance=True, filter_cache=False, **options) as reader:
        assert list(reader.schema.fields)[-3:] == ["source_file", "source_row_group", "source_row"]
        rows = 0
        for batch in reader.iter_batches(8):
            rows += batch.num_rows
            places = zip(batch["source_file"], batch["source_row_group"], batch["source_row"], strict=True)
            assert [stored(*place) for place in places] == batch["id"].tolist()
    assert rows > 0


def test_provenance_works_with_rows_loaders_and_processes(url: Path) -> None:
    stored = stored_at(url)
    with make_reader(str(url), provenance=True) as reader:
        row = next(reader)
        assert stored(row.source_file, row.source_row_group, row.source_row) == row.id
    spec = TransformSpec(sent.id_alone, removed_fields=["half"])
    with make_batch_reader(
        str(url), provenance=True, transform_spec=TransformSpec(sent.id_alone, removed_fields=["half"], takes="row"),
        reader_pool_type="process", workers_count=1,
    ) as reader:  # fmt: skip
        batch = next(reader)
        assert stored(batch.source_file[3], batch.source_row_group[3], batch.source_row[3]) == batch.id[3]
    with make_reader(str(url), provenance=True, transform_spec=spec) as reader:
        tensors = next(iter(DataLoader(reader, batch_size=5)))
    places = [tensors[name][2] for name in ("source_file", "source_row_group", "source_row")]
    assert stored(*places) == tensors["id"][2]


def test_provenance_in_mixtures_has_the_url_of_the_dataset(url: Path, tmp_path: Path) -> None:
    petastore.write_dataset(
        tmp_path / "other", {"id": np.arange(500, 540), "half": np.zeros(40)}, rows_per_row_group=7, rows_per_file=30
    )
    urls = [str(url), str(tmp_path / "other")]
    negated = TransformSpec(lambda row: {**row, "half": -row["half"]})

    def check(reader: petastore.Reader) -> None:
        seen = set()
        for batch in reader.iter_batches(8):
            places = zip(batch["source_file"], batch["source_row_group"], batch["source_row"], strict=True)
            for (file, row_group, row), number in zip(places, batch["id"].tolist(), strict=True):
                path = Path(file.removeprefix("file://"))
                assert stored_at(path.parent)(path.name, row_group, row) == number
                seen.add(path.parent.name)
        assert seen == {"data", "other"}

    asked: list[dict[str, Any]] = [
        {},
        {"source_column": "source", "transform_spec": negated},
        {"filters": col("half") < 40},
    ]
    for options in asked:
        with petastore.make_mixed_reader(urls, [2, 1], shuffle_rows=True, seed=3, provenance=True, **options) as mixed:
            check(mixed)
    readers = [make_reader(each, seed=3, provenance=True, transform_spec=negated) for each in urls]
    with WeightedSamplingReader(readers, [0.5, 0.5]) as sampled:
        check(sampled)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_provenance_works_in_torch_datasets(url: Path, num_workers: int) -> None:
    stored = stored_at(url)
    options: dict[str, Any] = {
        "provenance": True,
        "filters": col("id") > 20,
        "transform_spec": TransformSpec(lambda row: {**row, "half": -row["half"]}),
    }
    rows = ReaderDataset(url, batch_size=9, shuffle_rows=True, seed=1, **options)
    numbered = MapDataset(url, **options)
    loaders: list[Any] = [
        torch.utils.data.DataLoader(rows, batch_size=None, num_workers=num_workers),
        torch.utils.data.DataLoader(
            numbered, batch_size=9, num_workers=num_workers, shuffle=True, collate_fn=decimal_friendly_collate
        ),
    ]
    for loader in loaders:
        seen = []
        for batch in loader:
            places = zip(batch["source_file"], batch["source_row_group"], batch["source_row"], strict=True)
            assert [stored(file, int(group), int(row)) for file, group, row in places] == batch["id"].tolist()
            seen += batch["id"].tolist()
        assert sorted(seen) == list(range(21, 105))


def test_provenance_does_not_change_order_and_state(url: Path) -> None:
    with make_reader(str(url), shuffle_rows=True, seed=3) as plain:
        ids = [batch["id"].tolist() for batch in plain.iter_batches(10)]
    with make_reader(str(url), shuffle_rows=True, seed=3) as plain:
        first = next(plain.iter_batches(10))["id"].tolist()
        state = plain.state_dict()
    with make_reader(str(url), shuffle_rows=True, seed=3, provenance=True) as reader:
        reader.load_state_dict(state)
        assert [first, *(batch["id"].tolist() for batch in reader.iter_batches(10))] == ids


def test_provenance_raises_for_existing_columns_and_windows(url: Path, tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "taken", {"source_row": [1]})
    with pytest.raises(
        InvalidArgumentError, match=r"provenance must be False .* column 'source_row', which provenance=True adds"
    ):
        make_reader(str(tmp_path / "taken"), provenance=True)
    with pytest.raises(InvalidArgumentError, match="provenance must be False with an NGram"):
        make_reader(str(url), NGram({0: ["id"], 1: ["id"]}, 1, "id"), provenance=True)
