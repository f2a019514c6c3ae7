"""Tests of the reader attributes and methods that Petastorm programs and Horovod use."""

from __future__ import annotations

from pathlib import Path

import pytest

import petastore
from petastore.errors import ReaderClosedError


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("members") / "ids")
    schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(url, schema, [{"id": number} for number in range(10)], rows_per_row_group=4)
    return url


@pytest.mark.parametrize("batched", [False, True])
def test_repr_describes_the_reader(url: str, batched: bool) -> None:
    make = petastore.make_batch_reader if batched else petastore.make_reader
    with make(url, num_epochs=2) as reader:
        assert reader.is_batched_reader is reader.batched_output is batched
        assert reader.num_epochs == 2
        assert list(reader.schema.fields) == ["id"]
        assert [Path(path).suffix for path in reader.dataset.paths] == [".parquet"]  # type: ignore[union-attr]
        assert reader.rows_per_batch == (4 if batched else 1)


def test_reader_reports_the_end_and_restarts(url: str) -> None:
    with petastore.make_reader(url, num_epochs=None, shuffle_row_groups=False) as reader:
        assert [int(reader.next().id) for _ in range(12)] == [*range(10), 0, 1]
        assert not reader.last_row_consumed
    with petastore.make_reader(url) as reader:
        assert len(list(reader)) == 10
        assert reader.last_row_consumed
        reader.reset()
        assert not reader.last_row_consumed
        assert len(list(reader)) == 10


def test_stopped_reader_raises(url: str) -> None:
    with petastore.make_reader(url) as reader:
        next(reader)
        assert not reader.stopped
    assert reader.stopped
    with pytest.raises(ReaderClosedError):
        next(reader)


def test_diagnostics_can_be_read_at_any_time(url: str) -> None:
    with petastore.make_reader(url, workers_count=2) as reader:
        petastorms = dict.fromkeys(("output_queue_size", "items_produced", "items_consumed", "items_inprocess"), 0)
        stages = ("", "storage_", "decoding_", "transform_", "assembly_", "copy_")
        seconds = dict.fromkeys(
            (*(f"wait_{stage}seconds" for stage in stages), "startup_seconds", "elapsed_seconds"), 0
        )
        assert reader.diagnostics == {**seconds, "ready_spans_mean": 0.0, "workers": 2, **petastorms}
        next(reader)
        found = reader.diagnostics
        assert found["wait_seconds"] > 0
        assert found["items_produced"] - found["output_queue_size"] == found["items_consumed"] >= 1
        assert 0 <= found["items_inprocess"] <= 10 - found["items_produced"]
        assert len(list(reader)) == 9
        found = reader.diagnostics
        assert (found["items_produced"], found["items_inprocess"]) == (found["items_consumed"], 0)
    assert reader.diagnostics["workers"] == 2


def test_cleanup_cache_does_not_affect_other_readers(url: str) -> None:
    with petastore.make_reader(url) as first, petastore.make_reader(url) as second:
        next(second)
        first.cleanup_cache()
        assert len(list(second)) == 9
