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
"""After this long a module is ended, and counts as one that failed."""

_TEST_PATIENCE_S: Final = 180
_REPOSITORY: Final = Path(__file__).resolve().parents[3]


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended."""

    test: str
    """Its name below the module: `test_fields`, `test_read[reader_factory0]`, `ReaderMockTest.test_simple_read`."""

    ended: str
    """`passed`, `failed` or `skipped`; what fails while it is set up has failed."""

    said: str
    """The first line of its error, or why it was skipped; else empty."""


@dataclasses.dataclass(frozen=True, slots=True)
class Ran:
    """How a module ended."""

    outcomes: tuple[Outcome, ...]
    """Of each test; none where pytest did not get to an end."""

    seconds: float
    """From start to end."""

    trouble: str
    """Why there are no outcomes, with the last that pytest printed; empty where all is well."""

    printed: str
    """All that pytest printed."""


def environment_for(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the copies in a folder are run, and the processes that they start."""
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
        module: Its path below `petastorm/`.
        folder: Where the copies are.
        environment: What `environment_for` gave.
        only: An expression that chooses tests, as pytest's `-k`; empty are all.
    """
    stem = Path(module).stem
    report = folder / f"{stem}.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=short", f"--rootdir={folder}", "-c", os.devnull]
    # Petastorm's conftest reuses the data that Spark wrote for one module in later modules, as in Petastorm's own runs.
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
    """What pytest's report says of each test; a test that failed and whose clean-up failed, too, is one."""
    prefix = ".".join(("petastorm", *module.with_suffix("").parts))
    found: dict[str, Outcome] = {}
    # The report was written by pytest on the line above.
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
