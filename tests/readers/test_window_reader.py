"""Tests of opening a window reader: number of windows, filters, transforms, invalid fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import NGram, TransformSpec, UnischemaField, make_batch_reader
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.plan import Shard
from petastore.plan.request import OrderOptions, PlanOptions
from petastore.readers.options import DatasetOptions, ReadOptions, RowOptions, RunOptions
from petastore.readers.reader import Reader
from petastore.readers.window_reader import open_window_reader
from tests.readers.small import ROWS, written

PAIRS = NGram({0: ["id", "word"], 1: ["id"]}, 1, "id")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("window_reader")) / "data")


def opened(
    dataset: Dataset, ngram: NGram = PAIRS, *, rows: Any = None, spec: TransformSpec | None = None, **asked: Any
) -> Reader:
    return open_window_reader(
        dataset,
        ngram,
        ReadOptions(
            DatasetOptions(dataset),
            RowOptions(filters=rows, filter_cache=False),
            PlanOptions(order=OrderOptions(shuffle_row_groups=False), **asked),
            RunOptions(reader_pool_type="dummy", transform_spec=spec),
        ),
    )


def test_number_of_windows_is_known_before_reading(dataset: Dataset) -> None:
    with opened(dataset) as reader:
        assert len(reader) == ROWS - 1
        assert [(window[0].id, window[1].id) for window in reader] == [(n, n + 1) for n in range(ROWS - 1)]
        assert set(reader.row_schema.fields) == {"id", "word"}


def test_windows_exclude_filtered_rows(dataset: Dataset) -> None:
    with opened(dataset, rows=[("id", ">", 17)]) as reader:
        assert [window[0].id for window in reader] == [18, 19, 20, 21]


def test_window_fields_may_come_from_a_transform(dataset: Dataset) -> None:
    def twice(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "twice": 2 * row["id"]}

    spec = TransformSpec(twice, edit_fields=[UnischemaField("twice", np.int64)])
    with opened(dataset, NGram({0: ["id"], 1: ["twice"]}, 1, "id"), spec=spec) as reader:
        assert [window[1].twice for window in reader][:3] == [2, 4, 6]


@pytest.mark.parametrize("edit_fields", [None, []])
def test_ngram_error_names_edit_fields_when_a_transform_is_given(dataset: Dataset, edit_fields: Any) -> None:
    def twice(columns: dict[str, Any]) -> dict[str, Any]:
        return {**columns, "twice": 2 * columns["id"]}

    ngram, spec = NGram({0: ["id", "twice"]}, 1, "id"), TransformSpec(twice, edit_fields, takes="columns")
    with pytest.raises(InvalidArgumentError, match=r"got 'twice'\. A field that .* must be declared in edit_fields$"):
        make_batch_reader(dataset.url, ngram, transform_spec=spec)
    with pytest.raises(InvalidArgumentError, match=r"got 'twice'$"):
        make_batch_reader(dataset.url, ngram, transform_spec=TransformSpec(removed_fields=["word"]))
    declared = TransformSpec(twice, [("twice", np.int64, (), False)], takes="columns")
    with make_batch_reader(dataset.url, ngram, transform_spec=declared, shuffle_row_groups=False) as reader:
        assert next(reader.iter_batches(3))["twice"].tolist() == [[0], [2], [4]]
    with pytest.raises(
        InvalidArgumentError, match=r"at least one field of .*\. Name the fields that the transform rece"
    ):
        make_batch_reader(dataset.url, NGram({0: ["twice"]}, 1, "id"), transform_spec=declared)


def test_unknown_window_fields_raise(dataset: Dataset) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        opened(dataset, NGram({0: ["nowhere"]}, 1, "id"))


def test_window_reader_with_fewer_windows_than_ranks_raises(dataset: Dataset) -> None:
    with pytest.raises(NoDataAvailableError, match="99 ranks"):
        opened(dataset, shard=Shard(0, 99))
