"""Tests of metrics exporters for Prometheus, OpenTelemetry and TensorBoard, and of trace files."""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import prometheus_client
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

import petastore
from petastore.adapters.torch import DataLoader
from petastore.errors import InvalidArgumentError
from petastore.monitoring.log_lines import logged
from petastore.monitoring.opentelemetry import observe
from petastore.monitoring.prometheus import PrometheusCollector
from petastore.monitoring.tensorboard import write_scalars
from petastore.monitoring.trace import trace

ROWS = 4_000


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("exported") / "x")
    petastore.write_dataset(url, {"x": np.zeros((ROWS, 256), np.float32)}, rows_per_row_group=100, rows_per_file=1000)
    return url


@pytest.fixture
def loader(url: str) -> Iterator[DataLoader]:
    with DataLoader(petastore.make_reader(url, seed=1), 100) as loader:
        for _ in loader:
            pass
        yield loader


def test_prometheus_serves_the_counters_of_a_loader(loader: DataLoader) -> None:
    registry = prometheus_client.CollectorRegistry()
    collector = PrometheusCollector(loader, registry)
    assert registry.get_sample_value("petastore_rows_total", {"rank": "0"}) == ROWS
    waits = [
        registry.get_sample_value("petastore_wait_seconds_total", {"rank": "0", "stage": stage})
        for stage in ("storage", "decoding", "transform", "assembly", "copy")
    ]
    assert sum(filter(None, waits)) <= loader.diagnosis().counters.wait_seconds + 1e-9
    collector.close()
    assert registry.get_sample_value("petastore_rows_total", {"rank": "0"}) is None


def test_opentelemetry_collects_the_counters_of_a_reader(loader: DataLoader) -> None:
    collected = InMemoryMetricReader()
    observe(loader.reader, MeterProvider([collected]).get_meter("train"))
    data: Any = collected.get_metrics_data()
    metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert metrics["petastore.rows"].data.data_points[0].value == ROWS
    stages = {point.attributes["stage"] for point in metrics["petastore.wait.seconds"].data.data_points}
    assert stages == {"storage", "decoding", "transform", "assembly", "copy"}


def test_tensorboard_shows_the_loader_counters_at_their_step(loader: DataLoader, tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        write_scalars(writer, loader, step=7)
    events = EventAccumulator(str(tmp_path)).Reload()
    (rows,) = events.Scalars("petastore/rows")
    assert (rows.step, rows.value) == (7, ROWS)
    assert "petastore/wait_seconds/storage" in events.Tags()["scalars"]


def test_logged_loader_logs_rate_and_waiting_time_every_n_steps(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with DataLoader(petastore.make_reader(url), 100) as loader, caplog.at_level(logging.INFO, "petastore.monitoring"):
        assert sum(1 for _ in logged(loader, every=10)) == ROWS // 100
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"step {step}" for step in (10, 20, 30, 40)
    ]
    assert any("rows/s, training waited" in record.message for record in caplog.records)


def test_logged_loader_logs_on_rank_0_only(url: str) -> None:
    lines: list[str] = []
    with DataLoader(petastore.make_reader(url, cur_shard=1, shard_count=2), 100) as loader:
        assert sum(1 for _ in logged(loader, every=10, log=lines.append)) == ROWS // 200
    assert lines == []


@pytest.mark.parametrize("every", [0, True, 1.5])
def test_logged_loader_raises_unless_every_is_positive(every: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="every must be an int of at least 1"):
        logged(iter(()), every)


def test_trace_has_stages_of_worker_threads_and_waits_of_every_epoch(url: str, tmp_path: Path) -> None:
    with (
        DataLoader(petastore.make_reader(url, seed=1, workers_count=2), 100) as loader,
        trace(loader, tmp_path / "t.json"),
    ):
        for _ in range(2):
            for _ in loader:
                pass
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert {"wait for data", "training", "decoding"} <= {event["name"] for event in spans}
    assert all(event["dur"] >= 0 and event["ts"] > 0 for event in spans)
    loads = [event["args"] for event in spans if "row_groups" in event["args"]]
    assert {group for args in loads for group in args["row_groups"]} == set(range(40))
    assert len({args["file"] for args in loads}) == 4
    threads = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert "MainThread" in threads
    assert any(name.startswith("petastore-") for name in threads)
    of_thread: dict[int, list[tuple[float, float]]] = {}
    for event in spans:
        of_thread.setdefault(event["tid"], []).append((event["ts"], event["ts"] + event["dur"]))
    for times in of_thread.values():  # trace viewers draw partly overlapping events of one thread incorrectly
        times.sort()
        assert all(first[1] <= second[0] + 1 for first, second in itertools.pairwise(times))


def test_trace_of_a_part_of_an_epoch_is_written(url: str, tmp_path: Path) -> None:
    with petastore.make_reader(url) as reader:
        left = trace(reader, tmp_path / "t.json")
        left.__enter__()
        next(reader)
        left.__exit__(None, None, None)
        assert reader.meter.listeners == []
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
