"""Tests of throttling: a throttled reader backs off independently, and reads every row."""

from __future__ import annotations

import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served

GROUPS, REQUESTS_PER_S = 120, 60.0


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.usefixtures("real_backoff")
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.timeout(240)
def test_throttled_reader_backs_off_independently(served: Served, proxy: FaultProxy) -> None:
    numbers = np.random.default_rng(0).integers(0, 1 << 40, GROUPS * 400)
    name = f"{uuid.uuid4().hex}.parquet"
    pq.write_table(
        pa.table({"id": numbers}), served.root / name, row_group_size=400, compression="none", use_dictionary=False
    )
    with petastore.make_batch_reader(f"{proxy.url}/{name}", seed=0, shuffle_row_groups=False) as reader:
        proxy.begin(Faults(most_per_s=REQUESTS_PER_S))
        read = np.concatenate([batch.id for batch in reader])
        counts = reader.diagnostics
    assert np.array_equal(np.sort(read), np.sort(numbers))
    throttled = proxy.counted.faults["throttled"]
    assert throttled > 0
    assert counts["storage_retries"] == throttled
    assert proxy.counted.requests <= 2 * GROUPS
