"""dlio-benchmark itself, on a handful of rows: it trains with petastore, its own readers, and what is always ready."""

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
from benchmarks.accelerators.training import LIMIT, OWN, PETASTORE, READY, train
from benchmarks.accelerators.workloads import DATASET, WORKLOADS, Workload

FEW = {
    "pictures": dataclasses.replace(
        WORKLOADS["pictures"], batch=4, step_s=0.05, files=24, rows_a_group=5, configured_steps=6
    ),
    "tensors": dataclasses.replace(
        WORKLOADS["tensors"], batch=2, step_s=0.05, files=3, rows_a_file=4, rows_a_group=2, configured_steps=3
    ),
}

RECORDED = "neighbours.accelerators.recording"

Made = Callable[[str], tuple[Workload, Path]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A workload of few rows, and where all data lie."""
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
def test_a_simulated_accelerator_is_fed(name: str, loader: tuple[str, ...], made: Made) -> None:
    workload, data = made(name)
    found = train(workload, data, loader, step_s=0.05)
    assert 0 < found.utilisation < 1
    assert 0 < found.steady < 1
    assert 0 < found.rate < workload.batch / 0.05


def test_the_dataset_holds_the_bytes_of_the_files_that_dlio_generated(made: Made) -> None:
    workload, data = made("pictures")
    files = sorted((workload.folder(data) / "train").iterdir())
    assert [path.read_bytes() for path in files] == first_column(workload, data).to_pylist()
    assert Image.open(io.BytesIO(files[0].read_bytes())).size == (338, 338)


def test_every_picture_is_handed_over_decoded_and_once_in_each_epoch(made: Made) -> None:
    workload, data = made("pictures")
    words = (f"++workload.reader.data_loader_classname={RECORDED}.RecordedLoader", *PETASTORE[1:])
    train(workload, data, words, step_s=0.001)
    seen = json.loads((workload.folder(data) / "petastore.json").read_text(encoding="utf-8"))
    cells = first_column(workload, data).to_pylist()
    sums = [float(simplejpeg.decode_jpeg(cell, "GRAY").sum()) for cell in cells]
    assert sorted(seen) == sorted(sums)
    assert seen != sums  # shuffled


def test_dlios_own_reader_of_parquet_decodes_each_row(made: Made) -> None:
    workload, data = made("tensors")
    words = (f"++workload.reader.reader_classname={RECORDED}.RecordedReader", *OWN(2))
    train(workload, data, words, step_s=0.001)
    lines = [path.read_text(encoding="utf-8").splitlines() for path in workload.folder(data).glob("own-*.json")]
    seen = dict(json.loads(line) for lines_of_one in lines for line in lines_of_one)
    rows = first_column(workload, data).to_pylist()
    assert seen == {number: pytest.approx(float(np.sum(row, dtype=np.float64))) for number, row in enumerate(rows)}


def test_what_dlio_says_is_told_where_it_fails(made: Made) -> None:
    workload, data = made("pictures")
    with pytest.raises(RunFailedError, match="Not enough training dataset"):
        train(workload, data, ("++workload.dataset.num_files_train=25",), step_s=0.001)


def test_all_is_measured_in_turns_and_has_its_figure(made: Made) -> None:
    workload, data = made("pictures")
    said: list[str] = []
    measured = measure(workload, data, rounds=1, say=said.append)
    assert list(measured["cells"]) == list(DEMANDS)
    assert all(len(rounds) == 1 for rounds in measured["cells"].values())
    assert measured["released"] > 0
    assert len(said) == 1 + len(DEMANDS)
    bounds = [figure for figure in figures_of(measured) if figure.least is not None]
    assert len(bounds) == len(DEMANDS)
