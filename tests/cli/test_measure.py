"""`petastore throughput` shows what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from tests.cli.command import petastore
from tests.cli.terminals import on_a_terminal


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    write_dataset(path, Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


BRIEFLY = ("--warmup", "100", "--measure", "500", "--seconds", "0", "--batch-size", "50", "-w", "1")


def test_throughput_closes_with_one_line(dataset: Path) -> None:
    ran = petastore("throughput", dataset, *BRIEFLY)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "measured  500 rows in " in ran.stdout
    assert re.fullmatch(r"[0-9,]+ rows/s, .*/s, [0-9]+ % CPU, .* of memory", ran.stdout.splitlines()[-1])


def test_the_same_is_json_with_units_in_its_names(dataset: Path) -> None:
    ran = petastore("throughput", dataset, *BRIEFLY, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert (found["rows"], found["bytes_per_row"]) == (500, 8)
    assert found["rows_per_second"] == pytest.approx(500 / found["seconds"])
    assert found["bytes_per_second"] == pytest.approx(8 * found["rows_per_second"])
    rates = [found[f"{which}_rows_per_second"] for which in ("slowest", "median", "fastest")]
    assert rates == sorted(rates)
    assert found["first_seconds"] > 0
    assert found["cpu_percent"] > 0
    assert found["peak_memory_bytes"] > 10 * 2**20
    assert len(found) == 11


def test_a_terminal_sees_how_far_it_is_and_json_is_no_different_for_that(dataset: Path) -> None:
    code, seen, printed = on_a_terminal("throughput", dataset, *BRIEFLY, "--json", stream="stderr")
    assert code == 0
    shares = [int(share) for share in re.findall(r"([0-9]+)%", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen))]
    assert len(set(shares)) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert json.loads(printed)["rows"] == 500


def test_what_cannot_be_measured_is_one_line(dataset: Path) -> None:
    ran = petastore("throughput", dataset, "--pool-type", "fibre")
    assert ran.exit_code == 2
    assert "reader_pool_type='fibre' is not known" in ran.stderr
