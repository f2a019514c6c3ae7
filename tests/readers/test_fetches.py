"""Tests of predicted requests and bytes: they equal the counts of a proxy."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan.report.explanation import CostModel
from petastore.readers.fetches import fetches_of
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

GROUPS = 16
CHUNK = 80_000


@pytest.fixture
def dataset(served: Served, proxy: FaultProxy) -> Dataset:
    """Return a dataset of two files, each with eight row groups of five columns."""
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    for number in range(2):
        rows = np.random.RandomState(number).rand(GROUPS // 2 * 10_000, 5)
        table = pa.table({f"x{column}": rows[:, column] for column in range(5)})
        path = folder / f"part-{number}.parquet"
        pq.write_table(table, path, row_group_size=10_000, compression="none", use_dictionary=False)
    return petastore.open_dataset([f"{proxy.url}/{folder.name}/{path.name}" for path in sorted(folder.iterdir())])


def counted(dataset: Dataset, proxy: FaultProxy, **asked: Any) -> list[tuple[int, int]]:
    """Return requests and bytes of two epochs, each read by its own reader, so that no prefetch crosses epochs."""
    found = []
    opened: Any = dataset  # its footers are already in memory
    for _ in range(2):
        proxy.begin(Faults())
        with petastore.make_batch_reader(opened, seed=0, num_epochs=1, reader_pool_type="dummy", **asked) as reader:
            for _ in reader.iter_batches(1000):
                pass
        found.append((proxy.counted.requests, proxy.counted.bytes))
    return found


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize("columns", [["x0"], ["x1", "x2"], None], ids=str)
@pytest.mark.parametrize("shard", [(0, 1), (1, 2)], ids=str)
def test_predicted_requests_and_bytes_equal_those_counted_by_a_proxy(
    columns: list[str] | None, shard: tuple[int, int], dataset: Dataset, proxy: FaultProxy
) -> None:
    rank = petastore.plan.Shard(*shard)
    plan = dataset.plan(columns=columns, seed=0, shard=rank, epochs=2, reshuffle_each_epoch=False)
    model = CostModel(fetches_of(dataset, plan.request.columns), price_per_request=0.5, price_per_gb=1000)
    predicted = plan.explain(1000, storage=model).cost
    assert predicted is not None
    sharded = {"cur_shard": shard[0], "shard_count": shard[1]}
    found = counted(dataset, proxy, schema_fields=columns, reshuffle_each_epoch=False, **sharded)
    assert [(epoch.requests, epoch.bytes) for epoch in predicted.epochs] == found
    assert predicted.money == pytest.approx(sum(requests / 2 + size / 1e6 for requests, size in found))


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_predicted_requests_exclude_column_chunks_in_the_disk_cache(
    dataset: Dataset, proxy: FaultProxy, tmp_path: Path
) -> None:
    kept = dataset.with_cache(tmp_path, limit=1 << 24)
    plan = kept.plan(seed=0, epochs=2)
    room = kept.kept.cache.info().limit if kept.kept.cache is not None else 0
    predicted = plan.explain(1000, storage=CostModel(fetches_of(kept, plan.request.columns), cache_bytes=room)).cost
    assert predicted is not None
    assert [(epoch.requests, epoch.bytes) for epoch in predicted.epochs] == counted(kept, proxy)
    assert predicted.epochs[1].hits == predicted.epochs[1].entries == GROUPS * len(plan.request.columns)


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_prediction_of_requests_raises_for_unknown_columns(dataset: Dataset) -> None:
    found = fetches_of(dataset, ["x3"])
    assert found.requests.tolist() == [1] * GROUPS
    assert ((found.bytes > CHUNK) & (found.bytes < 1.1 * CHUNK)).all()
    assert (found.kept_bytes % 4096 == 0).all()
    with pytest.raises(InvalidArgumentError, match="'no'"):
        fetches_of(dataset, ["no"])
