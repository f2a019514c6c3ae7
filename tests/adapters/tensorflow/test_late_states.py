"""Tests of tf.data with states loaded in a loop, twice, at an epoch's end, inside a batch, or with filters."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore

pytestmark = pytest.mark.tf

ROWS, BATCH = 90, 8


@pytest.fixture
def url(tmp_path: Path) -> str:
    pq.write_table(pa.table({"id": range(ROWS)}), tmp_path / "x.parquet", row_group_size=7)
    return str(tmp_path)


def ids(batches: Any) -> list[int]:
    return [number for batch in batches for number in batch["id"].numpy().tolist()]


@pytest.mark.parametrize("filters", [None, [("id", "in", range(1, ROWS, 2))]], ids=["all rows", "filtered"])
def test_tf_dataset_resumes_exactly_from_states_loaded_late_or_repeatedly(url: str, filters: Any) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset

    asked: Any = {"shuffle_rows": True, "seed": 3, "num_epochs": 2, "filters": filters, "filter_cache": False}
    with petastore.make_reader(url, **asked) as reader:
        states, whole = [reader.state_dict()], []
        for row in reader:
            whole.append(int(row.id))
            states.append(reader.state_dict())
    epoch = len(whole) // 2
    last_batch = epoch - epoch % BATCH
    with petastore.make_reader(url, **asked) as reader:
        dataset = make_tf_dataset(reader, batch_size=BATCH)
        for rows in (5, last_batch, epoch, epoch + 16, last_batch):
            reader.load_state_dict(states[1])
            reader.load_state_dict(states[rows])
            rest, cut = ids(dataset), max(epoch - rows, 0)
            assert sorted(rest[:cut]) == sorted(whole[rows : rows + cut])
            assert sorted(rest[cut:]) == sorted(whole[rows + cut :])
            batches = iter(dataset)
            next(batches)
            reader.load_state_dict(states[rows])
            with pytest.raises(tf.errors.OpError, match=r"because load_state_dict, .* was called\. Start a new loop"):
                ids(batches)
            assert ids(dataset) == rest
            del batches
    gc.collect()  # TensorFlow keeps errors in reference cycles
