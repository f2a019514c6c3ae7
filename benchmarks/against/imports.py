"""Duration of `import petastore` in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.bench.process import TaskFailedError, environment_of

__all__ = ["import_seconds"]

TRIES: Final = 10
"""Processes; what the quickest took counts, for a busy machine makes none of them quicker."""

_LIMIT_SECONDS: Final = 120.0
_PROGRAM: Final = """\
import time
began = time.perf_counter()
import petastore
took = time.perf_counter() - began
import json
print(json.dumps([took, petastore.__file__]))
"""


def import_seconds(root: Path) -> float:
    """Seconds that the import took, with NumPy and pyarrow that come with it.

    Raises:
        TaskFailedError: It cannot be imported, or is not that of this tree.
    """
    return min(_seconds(root) for _ in range(TRIES))


def _seconds(root: Path) -> float:
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            cwd=root, env=environment_of(root), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_LIMIT_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TaskFailedError(f"import petastore: not done after {_LIMIT_SECONDS:.0f} s") from None
    if done.returncode:
        raise TaskFailedError(f"import petastore: {' '.join(done.stderr.split())[-300:]}")
    took, file = json.loads(done.stdout)
    if not Path(file).is_relative_to(root):
        raise TaskFailedError(f"import petastore gave {file}, which is not below {root}")
    return float(took)
