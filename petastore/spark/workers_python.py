"""The Python that Spark's workers run, which may be another one than this, and may have no petastore."""

from __future__ import annotations

import shutil
import subprocess
import sys
import warnings
from typing import Any

__all__ = ["warn_of_another_python"]

_ENOUGH_S = 30.0
"""Seconds for a Python to start and to look for a package."""

_MISSING = 7
"""What it ends with where there is none: neither 0 nor what Python itself ends with."""


def warn_of_another_python(spark: Any) -> None:
    """Says so before the job where workers on this machine run a Python that has no petastore.

    Of workers elsewhere, and of sessions of Spark Connect, nothing is known here.

    Args:
        spark: A session.

    Warns:
        UserWarning: They do; at the caller of who calls this.
    """
    context = getattr(spark, "_sc", None)  # the attribute without it refuses to be read with Connect
    if context is None or not str(context.master).startswith("local"):
        return
    python = shutil.which(context.pythonExec)
    if python in (None, sys.executable) or _has_petastore(python):
        return
    warnings.warn(
        f"Spark's workers run {python}, which has no petastore, and this process runs {sys.executable}: what workers "
        "encode will fail with No module named 'petastore'. Set PYSPARK_PYTHON before the session begins: "
        'os.environ["PYSPARK_PYTHON"] = sys.executable',
        UserWarning,
        stacklevel=3,
    )


def _has_petastore(python: str) -> bool:
    """Whether it finds the package; True where it does not say, since then nothing is known."""
    looks = f"import importlib.util, sys; sys.exit({_MISSING} * (importlib.util.find_spec('petastore') is None))"
    try:
        # What Spark is going to run anyway.
        ended = subprocess.run([python, "-c", looks], check=False, capture_output=True, timeout=_ENOUGH_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return True
    return ended.returncode != _MISSING
