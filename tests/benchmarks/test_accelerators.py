"""Tests of the accelerator benchmark without dlio-benchmark installed; `neighbours/accelerators` runs it with it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import yaml  # type: ignore[import-untyped]

import petastore
from benchmarks.accelerators.__main__ import PAGE, PUBLISHED
from benchmarks.accelerators.data import make
from benchmarks.accelerators.figures import figures_of
from benchmarks.accelerators.limit import PlainFolder, rate_of
from benchmarks.accelerators.page import page_of
from benchmarks.accelerators.processes import RunFailedError, alone
from benchmarks.accelerators.rounds import DEMANDS
from benchmarks.accelerators.training import CONFIGS
from benchmarks.accelerators.workloads import DATASET, TENSORS, WORKLOADS, Workload
from benchmarks.storage.figures import Figure
from petastore.codecs import CompressedImageCodec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_dlio_settings_match_the_workload(workload: Workload) -> None:
    config = yaml.safe_load((CONFIGS / "workload" / f"{workload.name}.yaml").read_text(encoding="utf-8"))
    assert config["reader"]["batch_size"] == workload.batch
    assert config["train"]["computation_time"] == workload.step_s
    assert workload.rows % workload.batch == 0
    assert workload.configured_steps <= workload.steps


def test_row_size_of_the_tensor_workload_matches_dlio() -> None:
    config = yaml.safe_load((CONFIGS / "workload" / "tensors.yaml").read_text(encoding="utf-8"))
    assert config["dataset"]["record_length"] == 4 * sum(TENSORS.values())


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_scaled_down_workload_has_at_least_three_batches(workload: Workload) -> None:
    assert workload.scaled(0.001).steps == 3
    assert workload.scaled(0.5).rows == pytest.approx(workload.rows / 2)


def test_dlio_benchmark_shows_parquet_files_to_dlio_by_links(tmp_path: Path) -> None:
    workload = dataclasses.replace(WORKLOADS["tensors"], files=2, rows_a_file=3, rows_a_group=2)
    said: list[str] = []
    folder = make(workload, tmp_path, said.append)
    assert said == [f"tensors: 6 rows written in {said[0].split()[-2]} s"]
    shown = sorted((folder / "train").iterdir())
    assert [path.name for path in shown] == ["part-0.parquet.synthetic", "part-1.parquet.synthetic"]
    assert [path.resolve().parent for path in shown] == [folder / DATASET] * 2
    with petastore.make_reader(folder / DATASET, seed=1) as reader:
        (batch,) = reader.iter_batches(6)
    assert {name: np.shape(batch[name]) for name in TENSORS} == {name: (6, size) for name, size in TENSORS.items()}
    assert make(workload, tmp_path, said.append) == folder
    assert len(said) == 1
    assert rate_of(folder / DATASET) > 0
    assert [rows for rows, _ in PlainFolder(folder / DATASET).decoded()] == [2, 1, 2, 1]


def test_upper_limit_of_the_accelerator_benchmark_decodes_images(tmp_path: Path) -> None:
    def write(name: str, cells: list[bytes]) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"image": pa.array(cells, pa.binary())}), tmp_path / name / "0.parquet")
        return tmp_path / name

    field = petastore.UnischemaField("image", np.uint8, (16, 16), CompressedImageCodec("jpeg"))
    schema = petastore.Unischema("Pictures", [field])
    petastore.write_dataset(tmp_path / "good", schema, [{"image": np.zeros((16, 16), np.uint8)}] * 5)
    ((rows, ((first, *others),)),) = PlainFolder(tmp_path / "good").decoded()
    assert (rows, first.shape, len(others)) == (5, (16, 16, 1), 4)
    with pytest.raises(ValueError, match=r"(?i)jpeg"):
        rate_of(write("bad", [b"no picture"]))


def doubled(number: int) -> int:
    return 2 * number


def failed() -> None:
    raise OSError("no disk")


def gone() -> None:
    os._exit(3)


def hung(folder: Path) -> None:
    os.fork()
    (folder / str(os.getpid())).touch()
    while True:
        time.sleep(60)


def test_benchmark_function_runs_in_a_new_process() -> None:
    assert alone(60, doubled, 21) == 42
    assert alone(60, os.getpid) != os.getpid()


def test_failure_of_a_benchmark_process_is_reported() -> None:
    with pytest.raises(RunFailedError, match="OSError: no disk"):
        alone(60, failed)
    with pytest.raises(RunFailedError, match="gone ended without a word"):
        alone(60, gone)


def test_hanging_benchmark_is_killed_with_its_children(tmp_path: Path) -> None:
    for limit in (3, 20, 120):  # the first may be too short on a busy machine
        folder = tmp_path / str(limit)
        folder.mkdir()
        with pytest.raises(RunFailedError, match=f"hung was not done after {limit} s"):
            alone(limit, hung, folder)
        started = [int(path.name) for path in folder.iterdir()]
        assert not [pid for pid in started if _runs(pid)]
        if len(started) == 2:
            break
    assert len(started) == 2


def _runs(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        psutil.wait_procs([process], timeout=10)
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def training(utilisation: float) -> dict[str, float]:
    return {
        "utilisation": utilisation, "first_epoch": utilisation - 0.02, "steady": utilisation - 0.01, "rate": 1.0,
        "first_step_s": 0.5,
    }  # fmt: skip


def rounds_of(step_s: float, limit: float, *utilisations: float, **more: dict[str, float]) -> list[dict[str, Any]]:
    ran = {"limit": training(limit), "own": training(0.3), **more}
    return [{"rate": 100.0, "step_s": step_s, "petastore": training(each), **ran} for each in utilisations]


@pytest.fixture
def measured() -> dict[str, Any]:
    return {
        "read_threads": {"1": 30.0, "2": 50.0},
        "best": 2,
        "released": 7.0,
        "cells": {
            "as configured": rounds_of(1.0, 0.999, 0.995, 0.98, 0.999),
            "0.5": rounds_of(1.0, 0.99, 0.98, 0.98, 0.999),
            "0.9": rounds_of(0.6, 0.991, 0.999, 0.993, ready=training(0.999)),
            "1.5": rounds_of(0.3, 0.61, 0.5, 0.6, 0.59),
        },
    }


def test_required_utilization_is_99_percent_if_limit_saturates_the_device(measured: dict[str, Any]) -> None:
    ours = [figure for figure in figures_of(measured) if figure.what == "petastore"]
    assert [figure.least for figure in ours] == [99.0, 99.0, 99.0, None]
    assert [figure.is_kept for figure in ours] == [True, False, True, None]


def test_required_rate_is_95_percent_of_a_limit_below_the_accelerator_rate(measured: dict[str, Any]) -> None:
    (share,) = [figure for figure in figures_of(measured) if figure.what == "petastore / limit, steady"]
    assert share.values == pytest.approx([0.49 / 0.6, 0.59 / 0.6, 0.58 / 0.6])
    assert (share.least, share.is_kept) == (0.95, True)


def test_accelerator_page_shows_released_dlio_reader_and_an_ideal_loader(
    measured: dict[str, Any],
) -> None:
    lines = [figure.what for figure in figures_of(measured)]
    assert lines.count("its reader as released, workers: 2") == 1
    assert lines.count("a loader that never waits") == 1
    assert lines.count("DLIO's own readers, workers: 2") == len(DEMANDS)
    lines = [figure.what for figure in figures_of({**measured, "released": None})]
    assert not any("released" in line for line in lines)


def test_accelerator_page_lists_the_measurements(measured: dict[str, Any]) -> None:
    figures = [dataclasses.asdict(figure) for figure in figures_of(measured)]
    found = {"date": "2026-11-23", "load": 0.5, "load_after": 1.25, "seconds": 12.3, "rounds": 3, "scale": 0.1}
    page = page_of({"machine": {"CPU": "Abacus"}, "shown": {"tensors": {**found, "figures": figures}}})
    assert "* CPU: Abacus\n" in page
    assert "| 1.5 × the limit, 0.300 s a step: the limit | 61" in page
    assert "in 3 rounds, with 10% of the rows, which took 12 s; load of the machine before 0.5, after 1.2." in page
    assert "\n## pictures" not in page


def test_accelerator_page_equals_the_published_results() -> None:
    results = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    assert PAGE.read_text(encoding="utf-8") == page_of(results)
    assert list(results["shown"]) == list(WORKLOADS)
    assert all(Figure.parse(figure).values for found in results["shown"].values() for figure in found["figures"])
