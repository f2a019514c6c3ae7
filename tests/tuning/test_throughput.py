"""Tests of `throughput`: counts of rows and bytes, time limits, progress, measurement in a new process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.codecs import NdarrayCodec
from petastore.errors import InvalidArgumentError, NoDataAvailableError
from petastore.tuning import Throughput, reader_throughput

if TYPE_CHECKING:
    from petastore.readers.options import PassedKwargs

SCHEMA = Unischema(
    "user",
    [
        UnischemaField("id", "int64"),
        UnischemaField("name", "str"),
        UnischemaField("pose", "float32", (None,), NdarrayCodec(), True),
    ],
)


class Ticking:
    """A clock that advances by one second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("throughput") / "users"
    pose = np.zeros(4, "float32")
    write_dataset(path, SCHEMA, [{"id": n, "name": "abc", "pose": pose} for n in range(70)], rows_per_row_group=20)
    return path


@pytest.mark.parametrize("batch_size", [None, 1, 16, 1000])
@pytest.mark.parametrize("pool_type", ["thread", "dummy"])
def test_throughput_reports_rows_bytes_and_times(dataset: Path, batch_size: int | None, pool_type: str) -> None:
    found = reader_throughput(dataset, None, 50, 200, pool_type, 2, batch_size=batch_size, spawn_new_process=False)
    assert 200 <= found.rows < 200 + 70
    assert found.bytes_per_row == 8 + 3 + 4 * 4
    assert 0 < found.slowest <= found.median <= found.fastest
    assert found.slowest <= found.rows_per_second * 1.001 <= found.fastest * 1.002
    assert found.first_seconds > 0
    assert found.time_mean == pytest.approx(1 / found.samples_per_second)
    assert found.memory_info.rss > 10 * 2**20


def test_throughput_measures_the_requested_number_of_rows_without_warm_up(dataset: Path) -> None:
    assert reader_throughput(dataset, None, 0, 33, spawn_new_process=False).rows == 33


def test_throughput_reads_only_the_selected_fields(dataset: Path) -> None:
    found = reader_throughput(dataset, ["na.*"], 10, 40, spawn_new_process=False)
    assert found.bytes_per_row == 3
    assert reader_throughput(dataset, "id", 10, 40, spawn_new_process=False).bytes_per_row == 8
    more: PassedKwargs = {"schema_fields": ["id"], "shuffle_rows": True}
    assert reader_throughput(dataset, None, 10, 40, reader_extra_args=more, spawn_new_process=False).bytes_per_row == 8


def test_throughput_runs_for_the_requested_seconds(dataset: Path) -> None:
    found = reader_throughput(dataset, None, 0, 5, spawn_new_process=False, seconds=300, clock=Ticking())
    assert found.seconds >= 300
    assert found.rows > 70


def test_throughput_ends_after_the_maximum_of_seconds(dataset: Path) -> None:
    measured = reader_throughput(
        dataset, None, 10, 10**9, batch_size=5, spawn_new_process=False, max_seconds=100, clock=Ticking()
    )
    assert 50 < measured.seconds < 100
    of_warm_up = reader_throughput(
        open_dataset(dataset), None, 10**9, 1, batch_size=5, spawn_new_process=False, max_seconds=100, clock=Ticking()
    )
    assert 100 <= of_warm_up.seconds < 105
    assert of_warm_up.median == of_warm_up.rows_per_second
    assert of_warm_up.diagnosis.counters.rows >= of_warm_up.rows


@pytest.mark.parametrize("spawn_new_process", [False, True])
def test_throughput_reports_progress_to_the_end(dataset: Path, spawn_new_process: bool) -> None:
    told: list[tuple[int, int]] = []
    found = reader_throughput(
        dataset, None, 40, 100, spawn_new_process=spawn_new_process, progress=lambda *now: told.append(now)
    )
    assert isinstance(found, Throughput)
    assert found.rows == 100
    assert told == sorted(told)
    assert told[-1] == (140, 140)
    assert 20 < len(told) <= 42


def test_throughput_progress_counts_seconds_when_seconds_is_given(dataset: Path) -> None:
    told: list[int] = []
    found = reader_throughput(
        dataset,
        None,
        0,
        100,
        spawn_new_process=False,
        seconds=400,
        progress=lambda done, _: told.append(done),
        clock=Ticking(),
    )
    assert found.rows > 100
    assert len(set(told)) > 5
    assert told == sorted(told)
    assert told.index(100) == len(told) - 1


def test_throughput_runs_in_a_new_process(dataset: Path) -> None:
    assert reader_throughput(dataset, None, 10, 50).rows == 50


def test_throughput_raises_errors_of_the_new_process(dataset: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    with pytest.raises(InvalidArgumentError, match="nothing"):
        reader_throughput(dataset, ["nothing"], progress=lambda *now: told.append(now))
    assert told == []


def test_throughput_stops_when_progress_raises(dataset: Path) -> None:
    def give_up(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reader_throughput(dataset, None, 40, 100, progress=give_up)


def test_throughput_invalid_arguments_raise(dataset: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="read_method must be 'python', got 'tf'"):
        reader_throughput(dataset, read_method="tf")
    with pytest.raises(InvalidArgumentError, match="measure_cycles_count"):
        reader_throughput(dataset, measure_cycles_count=0)
    with pytest.raises(InvalidArgumentError, match=r"reader_pool_type must be .*, got 'fibre'"):
        reader_throughput(dataset, pool_type="fibre", spawn_new_process=False)
    with pytest.raises(InvalidArgumentError, match="nothing"):
        reader_throughput(dataset, ["nothing"], spawn_new_process=False)
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")
    with pytest.raises(NoDataAvailableError):
        reader_throughput(tmp_path, spawn_new_process=False)
