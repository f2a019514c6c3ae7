"""Checks of worker processes: killed workers, and options with the process pool."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from .data import numbers, petastorm


def kill_this_worker(row: dict[str, Any]) -> dict[str, Any]:
    """Transform that kills its process, like the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)
    return row


def a_worker_that_is_killed_is_an_error(folder: Path) -> None:
    """Petastorm waits forever for the killed worker."""
    spec = petastorm("petastorm.transform").TransformSpec(kill_this_worker)
    asked = {"reader_pool_type": "process", "workers_count": 1, "transform_spec": spec}
    try:
        with petastorm().make_reader(numbers(folder, 30), **asked) as reader:
            found = len(list(reader))
    except RuntimeError:
        return
    raise AssertionError(f"no error: {found} rows")


def batches_are_made_in_processes_however_they_are_asked_for(folder: Path) -> None:
    """In Petastorm, `convert_early_to_numpy` fails with the process pool."""
    asked = {"reader_pool_type": "process", "workers_count": 1, "convert_early_to_numpy": True}
    with petastorm().make_batch_reader(numbers(folder, 30), **asked) as reader:
        assert sum(len(batch.id) for batch in reader) == 30
