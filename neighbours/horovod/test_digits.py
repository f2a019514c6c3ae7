"""Tests of the Horovod digits example on two ranks: equal steps, exact rows, and failure of Petastorm's sharding."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from examples.horovod_digits import TRAIN_ROW_GROUPS, Settings
from neighbours.conftest import Run
from neighbours.horovod.ordinal_shards import rows_of

HOROVODRUN = ["horovodrun", "--gloo", "--network-interfaces", "lo", "-np", "2"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("digits")


@pytest.fixture(scope="module")
def printed(run: Run, directory: Path) -> str:
    """Run the example and return its output; its digits remain in the directory."""
    return run([*HOROVODRUN, "python", "-m", "examples.horovod_digits", "--directory", directory], seconds=60)


@pytest.mark.slow
def test_horovod_ranks_take_equal_steps_over_uneven_row_groups(printed: str) -> None:
    closing = (
        r"horovod_digits: accuracy (\d\.\d+), 2 ranks, steps \[(\d+), (\d+)\], 1,437 rows, each once in each of 20"
    )
    found = re.search(closing, printed)
    assert found is not None, printed
    assert float(found[1]) >= 0.97
    assert found[2] == found[3]


@pytest.mark.slow
def test_sharding_by_row_group_number_ends_in_a_horovod_error(run: Run, directory: Path) -> None:
    """With the same script, one rank has ten times the steps of the other, and fails alone in an allreduce."""
    control = ["python", "-m", "neighbours.horovod.ordinal_shards", "--epochs", "1", "--directory", str(directory)]
    failed = run([*HOROVODRUN, *control], seconds=60, fails=True)
    steps = {int(steps) for steps in re.findall(r"rank \d has (\d+) steps", failed)}
    rows = [len(rows_of(rank, 2, list(TRAIN_ROW_GROUPS))) for rank in range(2)]
    assert steps == {-(-n // Settings.batch_size) for n in rows} == {42, 4}
    assert failed.count("has done them") == 1
    assert "HorovodInternalError" in failed
