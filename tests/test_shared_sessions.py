"""Tests of the xdist scheduler: files of `tests/spark` run on one worker, all others are distributed by file."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

SESSION = """
import os

def test_worker(record_property):
    record_property("worker", os.environ["PYTEST_XDIST_WORKER"])
"""


@pytest.mark.slow
def test_spark_test_files_run_on_one_pytest_worker(pytester: pytest.Pytester, repository: Path) -> None:
    pytester.makeconftest(
        f"import sys\nsys.path.insert(0, {str(repository)!r})\npytest_plugins = ['tests.shared_sessions']"
    )
    names = [*(f"tests/spark/test_{number}.py" for number in range(6)), *(f"tests/test_{n}.py" for n in range(6))]
    for name in names:
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SESSION, encoding="utf-8")
    ran = pytester.runpytest_subprocess(
        "-n", "2", "--dist", "loadfile", "--junitxml=junit.xml", "--import-mode=importlib"
    )
    ran.assert_outcomes(passed=12)
    report = (pytester.path / "junit.xml").read_text(encoding="utf-8")
    assert len(set(workers_of(report, "tests.spark"))) == 1
    assert set(workers_of(report, "tests.")) == {"gw0", "gw1"}


def workers_of(report: str, classname: str) -> list[str]:
    cases = re.findall(r'classname="([\w.]+)".*?name="worker" value="(\w+)"', report, re.DOTALL)
    return [worker for name, worker in cases if name.startswith(classname)]
