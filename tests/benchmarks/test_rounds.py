"""Tests of the benchmark harness on a workload of two batches: processes, rounds and failing libraries."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bench import rounds
from benchmarks.bench.__main__ import main
from benchmarks.bench.data import Data
from benchmarks.bench.drive import Pace
from benchmarks.bench.roster import CONTENDERS, FORMATS, Contender, contenders_for
from benchmarks.bench.rounds import Bench
from benchmarks.bench.venvs import OWN, PINS
from benchmarks.bench.workloads import WORKLOADS

pytestmark = pytest.mark.slow


def test_tiny_workload_runs_with_petastore_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--workloads", "rows", "--contenders", "petastore, rows", "--rounds", "1", "--seconds", "0"]
    assert main([*asked, "--scale", "0.01", "--folder", str(tmp_path)]) == 0
    assert "petastore, rows" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    (found,) = results["workloads"]["rows"]["contenders"].values()
    assert found["check"]["distinct"] == 1.0
    assert found["check"]["followers"] < 0.05
    assert found["runs"][0]["rate"] > 0
    assert found["runs"][0]["peak_megabytes"] > 10


def test_failure_of_one_benchmarked_library_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (able,) = contenders_for("rows")[:1]
    broken = Contender("broken", "peer", "no_such_contender", "petastore", only=("rows",))
    monkeypatch.setattr(rounds, "contenders_for", lambda _: [broken, able])
    bench = Bench(tmp_path, 1, Pace(0.0, 10.0), scale=0.01, say=lambda _: None)
    found = bench.run("rows")["contenders"]
    assert "no_such_contender" in found["broken"]["runs"][0]["error"]
    assert found[able.name]["runs"][0]["rate"] > 0


def test_order_of_benchmarked_libraries_rotates_each_round(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    order: list[tuple[str, str]] = []

    def done(_: Path, task: dict[str, Any], **_more: Any) -> dict[str, Any]:
        order.append((task["do"], task["module"]))
        return {"versions": {}, "rate": 1.0, "first_batch": 1.0, "peak_bytes": 1}

    three = [Contender(name, "ours", name, "petastore", only=("rows",)) for name in "abc"]
    monkeypatch.setattr(rounds, "contenders_for", lambda _: three)
    monkeypatch.setattr(rounds, "run_task", done)
    monkeypatch.setattr(Data, "make", lambda *_: None)
    Bench(tmp_path, 3, Pace(1.0, 1.0), say=lambda _: None).run("rows")
    assert "".join(module for do, module in order if do == "measure") == "abcbcacab"


def test_benchmark_configurations_have_unique_names_and_known_formats() -> None:
    environments = {OWN, *tomllib.loads(PINS.read_text(encoding="utf-8"))}
    folder = Path(rounds.__file__).parent / "contenders"
    for workload in WORKLOADS:
        names = [contender.name for contender in contenders_for(workload)]
        assert len(set(names)) == len(names)
    for contender in CONTENDERS:
        assert contender.environment in environments
        assert contender.format in FORMATS
        assert (folder / f"{contender.module}.py").exists()
        assert set(contender.only) <= set(WORKLOADS)
    for wanted in FORMATS.values():
        assert wanted.environment in environments
        assert (folder / f"{wanted.module}.py").exists()
        assert set(wanted.needs) <= set(FORMATS)
