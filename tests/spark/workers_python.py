"""Check the warning about workers whose Python lacks petastore; `test_workers_python.py` checks the facts."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import petastore
from petastore.spark import materialize_dataset


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Return the warnings, as file name and text, for each Python that workers could run."""
    without, with_it = python_at(folder / "without", "-S -I"), python_at(folder / "with", "")
    schema = petastore.Unischema("one", [petastore.UnischemaField("id", "int64")])
    context = spark.sparkContext
    before = context.pythonExec
    facts: dict[str, Any] = {"without": str(without), "this": sys.executable}
    for name, python in {"unset": sys.executable, "no": "no-such-python", "with": with_it, "warned": without}.items():
        context.pythonExec = str(python)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            materialize_dataset(spark, folder / "one", schema)
        said = [warning for warning in caught if "PYSPARK_PYTHON" in str(warning.message)]
        facts[name] = [[warning.filename == __file__, str(warning.message)] for warning in said]
    context.pythonExec = before
    return facts


def python_at(path: Path, options: str) -> Path:
    """Write a script that starts this Python with some options."""
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {options} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path
