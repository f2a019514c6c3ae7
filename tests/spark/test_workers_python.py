"""Workers that run a Python without petastore are told of before the job, by a real session."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.pace import patience

PROGRAM = """
import sys, warnings
import petastore
from petastore.spark import local_session, materialize_dataset

spark, url = local_session(), sys.argv[1]
schema = petastore.Unischema("one", [petastore.UnischemaField("id", "int64")])

def said():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        materialize_dataset(spark, url, schema)
    return [warning for warning in caught if "PYSPARK_PYTHON" in str(warning.message)]

(warning,) = said()
assert warning.filename == "<string>", warning.filename
assert sys.argv[2] in str(warning.message) and sys.executable in str(warning.message), warning.message
for other in (sys.executable, "no-such-python", sys.argv[3]):
    spark._sc.pythonExec = other
    assert said() == [], other
spark.stop()
"""


def python_at(path: Path, options: str) -> Path:
    """A Python that starts this one."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def test_a_python_without_petastore_is_named_and_no_other(tmp_path: Path, repository: Path) -> None:
    without, with_it = python_at(tmp_path / "without", "-S -I"), python_at(tmp_path / "with", "")
    folders = os.pathsep.join(filter(None, [str(repository), os.environ.get("PYTHONPATH")]))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path / "one", without, with_it],
        env={**os.environ, "PYSPARK_PYTHON": str(without), "PYTHONPATH": folders},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(100),
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
