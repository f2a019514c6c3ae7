"""Tests of dlio-benchmark on a few rows: it trains with petastore, its own readers, and an instant loader."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import simplejpeg
from PIL import Image

from benchmarks.accelerators.data import make
from benchmarks.accelerators.figures import figures_of
from benchmarks.accelerators.processes import RunFailedError
from benchmarks.accelerators.rounds import DEMANDS, measure
from benchmarks.accelerators.training import CONFIGS, LIMIT, OWN, PETASTORE, READY, train
from benchmarks.accelerators.workloads import DATASET, WORKLOADS, Workload
from neighbours.conftest import Run

FEW = {
    "pictures": dataclasses.replace(
        WORKLOADS["pictures"], batch=4, step_s=0.05, files=24, rows_a_group=5, configured_steps=6
    ),
    "tensors": dataclasses.replace(
        WORKLOADS["tensors"], batch=2, step_s=0.05, files=3, rows_a_file=4, rows_a_group=2, configured_steps=3
    ),
}

RECORDED = "neighbours.accelerators.recording"
RECORDED_PETASTORE = (f"++workload.reader.data_loader_classname={RECORDED}.RecordedLoader", *PETASTORE[1:])

Made = Callable[[str], tuple[Workload, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Return a function that creates the data of a small workload; it returns the workload and the data folder."""
    data = tmp_path_factory.mktemp("accelerators")

    def make_it(name: str) -> tuple[Workload, Path]:
        make(FEW[name], data, print)
        return FEW[name], data

    return make_it


def first_column(workload: Workload, data: Path) -> pa.ChunkedArray:
    return pq.read_table(workload.folder(data) / DATASET).column(0)


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize(
    "loader",
    [PETASTORE, LIMIT, OWN(1), OWN(2), READY],
    ids=["petastore", "limit", "own-1", "own-2", "ready"],
)
def test_dlio_accelerator_trains_on_batches_of_each_loader(name: str, loader: tuple[str, ...], made: Made) -> None:
    workload, data = made(name)
    found = train(workload, data, loader, step_s=0.05)
    assert 0 < found.utilisation < 1
    assert 0 < found.steady < 1
    assert 0 < found.rate < workload.batch / 0.05


def test_dlio_dataset_has_the_bytes_of_generated_files(made: Made) -> None:
    workload, data = made("pictures")
    files = sorted((workload.folder(data) / "train").iterdir())
    assert [path.read_bytes() for path in files] == first_column(workload, data).to_pylist()
    assert Image.open(io.BytesIO(files[0].read_bytes())).size == (338, 338)


def sums_of(workload: Workload, data: Path) -> list[float]:
    """Return the pixel sums of the dataset's images, decoded directly by the JPEG library."""
    cells = first_column(workload, data).to_pylist()
    return [float(simplejpeg.decode_jpeg(cell, "GRAY").sum()) for cell in cells]


def recorded(workload: Workload, data: Path, rank: int) -> list[float]:
    seen: list[float] = json.loads((workload.folder(data) / f"petastore-{rank}.json").read_text(encoding="utf-8"))
    return seen


def test_dlio_reader_yields_each_decoded_image_once_per_epoch(made: Made) -> None:
    workload, data = made("pictures")
    train(workload, data, RECORDED_PETASTORE, step_s=0.001)
    seen, sums = recorded(workload, data, 0), sums_of(workload, data)
    assert sorted(seen) == sorted(sums)
    assert seen != sums  # the rows are shuffled


def test_dlio_accelerator_is_a_rank_under_mpiexec(made: Made, run: Run, tmp_path: Path) -> None:
    workload, data = made("pictures")
    words = [
        *(f"--config-dir={CONFIGS}", f"workload={workload.name}", f"hydra.run.dir={tmp_path}"),
        f"++workload.dataset.data_folder={workload.folder(data)}",
        f"++workload.dataset.num_files_train={workload.files}",
        f"++workload.reader.batch_size={workload.batch}",
        *("++workload.train.computation_time=0.001", "++workload.train.epochs=2"),
        *RECORDED_PETASTORE,
    ]
    run(["mpiexec", "-n", "2", "dlio_benchmark", *words], environment={"DFTRACER_ENABLE": "0"})
    shares = [recorded(workload, data, rank) for rank in range(2)]
    assert [len(share) for share in shares] == [workload.files // 2] * 2
    assert sorted(shares[0] + shares[1]) == sorted(sums_of(workload, data))
    told = [json.loads((tmp_path / f"{rank}_output.json").read_text(encoding="utf-8")) for rank in range(2)]
    steps = workload.files // 2 // workload.batch
    assert [[len(of_one[str(epoch)]["proc"]["block1"]) for epoch in (1, 2)] for of_one in told] == [[steps] * 2] * 2


def test_dlio_parquet_reader_decodes_each_row(made: Made) -> None:
    workload, data = made("tensors")
    words = (f"++workload.reader.reader_classname={RECORDED}.RecordedReader", *OWN(2))
    train(workload, data, words, step_s=0.001)
    lines = [path.read_text(encoding="utf-8").splitlines() for path in workload.folder(data).glob("own-*.json")]
    seen = dict(json.loads(line) for lines_of_one in lines for line in lines_of_one)
    rows = first_column(workload, data).to_pylist()
    assert seen == {number: pytest.approx(float(np.sum(row, dtype=np.float64))) for number, row in enumerate(rows)}


def test_dlio_failure_shows_the_output_of_dlio(made: Made) -> None:
    workload, data = made("pictures")
    with pytest.raises(RunFailedError, match="Not enough training dataset"):
        train(workload, data, ("++workload.dataset.num_files_train=25",), step_s=0.001)


def test_dlio_benchmark_measures_all_loaders(made: Made) -> None:
    workload, data = made("pictures")
    said: list[str] = []
    measured = measure(workload, data, rounds=1, say=said.append)
    assert list(measured["cells"]) == list(DEMANDS)
    assert all(len(rounds) == 1 for rounds in measured["cells"].values())
    assert measured["released"] > 0
    assert len(said) == 1 + len(DEMANDS)
    bounds = [figure for figure in figures_of(measured) if figure.least is not None]
    assert len(bounds) == len(DEMANDS)
