"""Tests of the GPU waiting benchmark, on machines without a GPU."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import petastore
from benchmarks.bench.tables import aligned
from benchmarks.busy import CLASSES, HEADER, SIDE, Busy, counts_of, main, measure, resnet50, row_of, stepper, write
from petastore.adapters.torch import DataLoader

pytestmark = pytest.mark.slow


class Clock:
    """Simulated device with steps of 30 ms, and a loader that takes `loading_ms` for each batch."""

    def __init__(self, loading_ms: float) -> None:
        self.now = 0.0
        self.loading_ms = loading_ms

    def batches(self) -> Iterator[None]:
        while True:
            self.now += self.loading_ms
            yield None

    def step(self, _: None) -> None:
        self.now += 30.0

    def mark(self) -> float:
        return self.now


@pytest.mark.parametrize(("loading_ms", "waiting"), [(0.0, 0.0), (10.0, 0.25), (30.0, 0.5)])
def test_gpu_waiting_time_is_the_gap_between_steps(loading_ms: float, waiting: float) -> None:
    clock = Clock(loading_ms)
    busy = measure(clock.batches(), clock.step, 8, clock.mark, lambda first, then: then - first)
    assert busy == Busy(step_ms=30.0 + loading_ms, waiting=waiting)


def test_gpu_waiting_time_excludes_the_first_batch() -> None:
    clock = Clock(0.0)

    def late() -> Iterator[None]:
        clock.now += 5000.0
        yield from clock.batches()

    assert measure(late(), clock.step, 4, clock.mark, lambda first, then: then - first).waiting == 0.0


def test_gpu_benchmark_raises_for_too_few_batches() -> None:
    clock = Clock(0.0)
    with pytest.raises(ValueError, match="5 batches were wanted, 3 came"):
        measure(itertools.islice(clock.batches(), 3), clock.step, 4, clock.mark, lambda first, then: then - first)


def test_gpu_benchmark_cpu_counts_do_not_exceed_the_machine() -> None:
    assert counts_of(1) == [1]
    assert counts_of(16) == [1, 2, 4, 8, 16]
    assert counts_of(100) == [1, 2, 4, 8, 16]


def test_gpu_benchmark_model_has_the_size_of_resnet_50() -> None:
    model = resnet50().eval()
    with torch.no_grad():
        assert model(torch.zeros(1, 3, 64, 64)).shape == (1, CLASSES)
        assert model[:-3](torch.zeros(1, 3, SIDE, SIDE)).shape == (1, 2048, 7, 7)  # type: ignore[index]
    assert sum(weights.numel() for weights in model.parameters()) == 25_557_032


def test_gpu_benchmark_trains_a_step_on_the_written_data(tmp_path: Path) -> None:
    write(str(tmp_path / "pictures"), 4)
    step = stepper(torch.device("cpu"))
    with petastore.make_reader(tmp_path / "pictures", seed=1) as reader:
        batches = list(DataLoader(reader, batch_size=2))
    assert [batch["image"].shape for batch in batches] == [(2, SIDE, SIDE, 3)] * 2
    step(batches[0])


def test_gpu_benchmark_table_has_a_row_per_cpu_count() -> None:
    fed, resident = {"step_ms": 200.0, "waiting": 0.5}, {"step_ms": 100.0, "waiting": 0.001}
    table = aligned([HEADER, row_of(1, {"fed": fed, "resident": resident}, 256)])
    assert table.splitlines()[1].split() == ["1", "1,280", "50.0", "%", "2,560", "0.1", "%"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU, and it would be measured")
def test_gpu_benchmark_reports_a_missing_gpu() -> None:
    with pytest.raises(SystemExit, match="no CUDA device here, so no GPU waits for data"):
        main([])
