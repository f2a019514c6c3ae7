"""Run one test module of Petastorm with pytest in its own process."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from pathlib import Path
from typing import Final

__all__ = ["Outcome", "Ran", "environment_for", "run"]

PATIENCE_S: Final = 900
"""Timeout of a module in seconds, after which it counts as failed."""

_TEST_PATIENCE_S: Final = 180
_REPOSITORY: Final = Path(__file__).resolve().parents[3]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one test."""

    test: str
    """Its name in the module: `test_fields`, `test_read[reader_factory0]`, `ReaderMockTest.test_simple_read`."""

    ended: str
    """`passed`, `failed` or `skipped`; errors during setup count as failed."""

    said: str
    """The first line of its error, or the reason for skipping; else empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """Results of one module."""

    outcomes: tuple[Outcome, ...]
    """Results of its tests; empty if pytest did not finish."""

    seconds: float
    """Duration of the run."""

    trouble: str
    """Reason for missing results, with the last output of pytest; otherwise empty."""

    printed: str
    """All output of pytest."""


def environment_for(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for running the copied tests, and their child processes."""
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return {
        **environment,
        "PYTHONPATH": os.pathsep.join([str(folder), str(_REPOSITORY), *filter(None, [environment.get("PYTHONPATH")])]),
        "TMPDIR": str(scratch),
        "PETASTORE_CACHE": str(folder / "cache"),
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }


def run(module: str, folder: Path, environment: Mapping[str, str], *, only: str = "") -> Ran:
    """Run one of the copied modules.

    Args:
        module: Path of the module below `petastorm/`.
        folder: Folder of the copies.
        environment: Result of `environment_for`.
        only: Expression that selects tests, as for pytest's `-k`; empty selects all.
    """
    stem = Path(module).stem
    report = folder / f"{stem}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", f"--rootdir={folder}", "-c", os.devnull]
    # Petastorm's conftest lets later modules reuse the data that Spark wrote, as in Petastorm's own test runs.
    command += ["--cache-synthetic-dataset", f"--override-ini=cache_dir={folder / 'kept'}"]
    command += [f"--basetemp={folder / 'of' / stem}"]
    command += [f"--timeout={_TEST_PATIENCE_S}", "--timeout-method=signal", f"--junitxml={report}"]
    command += [str(folder / "petastorm" / module), *(["-k", only] if only else [])]
    (folder / "of").mkdir(exist_ok=True)
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        printed, trouble = done.stdout + done.stderr, f"pytest ended with {done.returncode}"
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode(errors="replace")
        trouble = f"no end after {PATIENCE_S} s"
    seconds = time.monotonic() - begun
    outcomes = _outcomes_in(report, Path(module)) if report.exists() else ()
    if outcomes:
        trouble = ""
    return Ran(outcomes, seconds, trouble and f"{trouble}: {printed.strip()[-2000:]}", printed)


def _outcomes_in(report: Path, module: Path) -> tuple[Outcome, ...]:
    """Return the results in pytest's report; a test that fails and whose teardown fails, too, counts once."""
    prefix = ".".join(("petastorm", *module.with_suffix("").parts))
    found: dict[str, Outcome] = {}
    # pytest wrote the report, so it is trusted input.
    for case in ET.parse(report).iter("testcase"):  # noqa: S314
        inside = case.get("classname", "").removeprefix(prefix).strip(".")
        outcome = _outcome_of(case, f"{inside}.{case.get('name')}".lstrip("."))
        if outcome.test not in found or outcome.ended == "failed":
            found[outcome.test] = outcome
    return tuple(found.values())


def _outcome_of(case: ET.Element, test: str) -> Outcome:
    for kind, ended in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        told = case.find(kind)
        if told is not None:
            return Outcome(test, ended, (told.get("message") or "").strip().split("\n")[0][:300])
    return Outcome(test, "passed", "")
