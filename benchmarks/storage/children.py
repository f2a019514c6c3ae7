"""Reader processes that the benchmark starts, and their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.bench.process import ROOT

__all__ = ["Child", "one_epoch"]

LIMIT_S = 300.0
"""Who takes longer is ended, and has failed."""


class Child:
    """A process that reads epochs; ended with the block.

    Args:
        module: Its `batches` gives them.
        workload: The name of the dataset.
        place: Its directory or URL.
        rows: Of an epoch.
        scale: Share of the dataset.
        epochs: How many.
        python: Of the environment that has the loader.
        environment: Added to ours.
        **options: Of `batches`.
    """

    def __init__(
        self,
        module: str,
        workload: str,
        place: str,
        rows: int,
        *,
        scale: float = 1.0,
        epochs: int = 1,
        python: Path | str = sys.executable,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> None:
        task = {"module": module, "workload": workload, "place": place, "rows": rows, "scale": scale, "epochs": epochs}
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", "benchmarks.storage.epochs", json.dumps(task | {"options": options})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
            start_new_session=True,
        )
        self._watch = threading.Timer(LIMIT_S, self._process.kill)
        self._watch.start()

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def epoch(self) -> dict[str, Any]:
        """What it tells after its next epoch.

        Raises:
            RuntimeError: It ended before.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(b'{"seconds"'):  # some loaders print other things
                told: dict[str, Any] = json.loads(line)
                return told
        self._process.wait()
        self._said.seek(0)
        last = self._said.read().decode(errors="replace").strip().splitlines()[-1:]
        raise RuntimeError(f"no epoch, exit status {self._process.returncode}: {''.join(last)[:300]}")

    def go_on(self) -> None:
        """Lets it begin the next epoch."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()
        self._watch.cancel()
        self._said.close()


def one_epoch(*asked: Any, **options: Any) -> dict[str, Any]:
    """What a child tells after one epoch."""
    with Child(*asked, **options) as child:
        return child.epoch()
