"""Tests of schema inference from the first row: how many bytes it fetches and how often it runs."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import ReaderDataset
from petastore.transforming.transform import TransformSpec
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_first_row_inference_fetches_little_data(served: Served, proxy: FaultProxy) -> None:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    numbers = pa.table({"id": np.arange(3_000_000)})
    pq.write_table(numbers, folder / "one.parquet", compression="none", use_dictionary=False, data_page_size=1 << 14)
    dataset: Any = petastore.open_dataset(f"{proxy.url}/{folder.name}/one.parquet")
    proxy.begin(Faults())
    halved = TransformSpec(lambda row: {"id": row["id"] / 2})
    with petastore.make_reader(dataset, transform_spec=halved) as reader:
        assert reader.schema["id"].dtype == np.float64
        assert proxy.counted.bytes < 6_000_000  # of 24 million; fsspec reads 5 million ahead


def test_first_row_inference_runs_once_per_torch_dataset(tmp_path: Any) -> None:
    url, calls = str(tmp_path / "five"), []
    schema = petastore.Unischema("five", [petastore.UnischemaField("id", np.int64)])
    petastore.write_dataset(url, schema, [{"id": i} for i in range(5)])

    def halve(row: dict[str, Any]) -> dict[str, Any]:
        calls.append(row["id"])
        return {"id": row["id"] / 2}

    dataset = ReaderDataset(url, batch_size=2, workers_count=1, transform_spec=TransformSpec(halve))
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert sum(len(batch["id"]) for batch in dataset) == 5
    assert len(calls) == 1 + 2 * 5
