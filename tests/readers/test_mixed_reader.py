"""Tests of the mixed reader: proportions of weights, transforms per source, batches of all rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import TransformSpec, make_mixed_reader, write_dataset
from petastore.dataset import Dataset
from petastore.plan.mixture.mixture import Batching, Mixture
from petastore.readers.mixed_sources import MixedReader
from petastore.work.pools import Workers
from tests.readers.small import plan_of, written

DUMMY = Workers("dummy")


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Dataset]:
    folder = Path(tmp_path_factory.mktemp("mixed_reader"))
    return [written(folder / name) for name in ("one", "other")]


def mixture_of(datasets: list[Dataset]) -> Mixture:
    return Mixture([plan_of(dataset) for dataset in datasets], [2, 1])


def test_mixed_rows_have_the_proportions_of_weights(datasets: list[Dataset]) -> None:
    with MixedReader(datasets, mixture_of(datasets), workers=DUMMY, source_column="source") as reader:
        rows = [(int(row.source), int(row.id)) for row in reader]
    counts = Counter(source for source, _ in rows)
    assert (counts[0], counts[1]) in ((23, 11), (23, 12))
    for source in (0, 1):
        of_source = [number for each, number in rows if each == source]
        assert of_source == list(range(len(of_source)))


def plus(more: int) -> TransformSpec:
    def add(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "id": row["id"] + more}

    return TransformSpec(add)


def test_mixed_reader_accepts_one_transform_or_one_per_source(datasets: list[Dataset]) -> None:
    for transforms, least in (
        (plus(100), {0: 100, 1: 100}),
        ([plus(100), plus(200)], {0: 100, 1: 200}),
        ([None, plus(200)], {0: 0, 1: 200}),
    ):
        with MixedReader(
            datasets, mixture_of(datasets), workers=DUMMY, transforms=transforms, source_column="source"
        ) as reader:
            found = {int(row.source): int(row.id) for row in reversed(list(reader))}
        assert found == least


def test_batched_mixed_reader_yields_batches_with_all_rows(datasets: list[Dataset]) -> None:
    with MixedReader(datasets, mixture_of(datasets), workers=DUMMY, batched=True) as reader:
        assert sum(len(batch.id) for batch in reader) == reader.num_rows


@pytest.mark.parametrize("batching", ["mixed", "per_source"])
def test_mixture_by_numbers_of_rows_reads_each_row_of_unequal_sources_once(tmp_path: Path, batching: Batching) -> None:
    sizes = {"big": 50_000, "small": 5}
    for name, rows in sizes.items():
        write_dataset(tmp_path / name, {"id": np.arange(rows)}, rows_per_row_group=5000)
    urls = [str(tmp_path / name) for name in sizes]
    with make_mixed_reader(
        urls, list(sizes.values()), stop="all_exhausted", batching=batching, source_column="source", shuffle_rows=True
    ) as reader:
        batches = list(reader.iter_batches(5))
    for source, rows in enumerate(sizes.values()):
        ids = np.concatenate([batch["id"][batch["source"] == source] for batch in batches])
        assert np.array_equal(np.sort(ids), np.arange(rows))
