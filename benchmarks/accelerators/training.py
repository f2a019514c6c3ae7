"""Run one training run of dlio-benchmark by its command line, and parse its output."""

from __future__ import annotations

import dataclasses
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.accelerators.processes import RunFailedError, alone
from benchmarks.accelerators.workloads import EPOCHS, Workload

__all__ = ["LIMIT", "OWN", "PETASTORE", "READY", "RELEASED", "Training", "dlio", "train"]

CONFIGS: Final = Path(__file__).with_name("configs")

_LOADERS: Final = "benchmarks.accelerators.loaders"
_CUSTOM: Final = "++workload.reader.data_loader_sampler=iterative"
PETASTORE: Final = (f"++workload.reader.data_loader_classname={_LOADERS}.PetastoreLoader", _CUSTOM)
LIMIT: Final = (f"++workload.reader.data_loader_classname={_LOADERS}.LimitLoader", _CUSTOM)
READY: Final = (f"++workload.reader.data_loader_classname={_LOADERS}.ReadyLoader", _CUSTOM)


def OWN(read_threads: int) -> tuple[str, ...]:  # noqa: N802 - a contender, like the other two constants
    """DLIO's torch loader with so many worker processes, and the reader of the workload's format."""
    return (f"++workload.reader.read_threads={read_threads}",)


RELEASED: Final = ("++workload.reader.reader_classname=null",)
"""Added to these words: the reader as DLIO has it."""


@dataclasses.dataclass(frozen=True)
class Training:
    """What DLIO found.

    Args:
        utilisation: Time of computing over time, from the end of an epoch's first step on: its accelerator utilisation
            (AU), as a share, the mean of all epochs.
        first_epoch: The same of the first epoch.
        steady: The same over the second half of an epoch's steps, when what was read ahead during the first is used up.
        rate: Rows a second, over the second half.
        first_step_s: Seconds of the first step, which opens, starts and fills everything.
    """

    utilisation: float
    first_epoch: float
    steady: float
    rate: float
    first_step_s: float


def train(
    workload: Workload, data: Path, loader: Sequence[str], step_s: float, steps: int = -1, *, epochs: int = EPOCHS
) -> Training:
    """Trains in a process of its own.

    Args:
        workload: What is read.
        data: Where all data lie.
        loader: Words of DLIO's command line that choose the loader.
        step_s: Seconds that the accelerator computes in a step.
        steps: Of an epoch; -1 is all there are.
        epochs: How many.

    Raises:
        RunFailedError: It failed, or took much longer than it may.
    """
    with tempfile.TemporaryDirectory() as output:
        words = [
            *(f"--config-dir={CONFIGS}", f"workload={workload.name}", f"hydra.run.dir={output}"),
            f"++workload.dataset.data_folder={workload.folder(data)}",
            f"++workload.dataset.num_files_train={workload.files}",
            f"++workload.dataset.num_samples_per_file={workload.rows_a_file}",
            f"++workload.reader.batch_size={workload.batch}",
            f"++workload.train.computation_time={step_s}",
            f"++workload.train.total_training_steps={steps}",
            f"++workload.train.epochs={epochs}",
            *loader,
        ]
        dlio(words, Path(output), 60 + 10 * epochs * workload.steps * step_s)
        return _told(Path(output), workload.batch, step_s)


def dlio(words: Sequence[str], output: Path, seconds: float) -> None:
    """Runs the command `dlio_benchmark` with these words; what it prints goes to a file in `output`.

    Raises:
        RunFailedError: It failed, or took longer.
    """
    said = output / "said"
    try:
        alone(seconds, _command, list(words), said)
    except RunFailedError as problem:
        last = said.read_text(encoding="utf-8", errors="replace")[-2000:] if said.exists() else ""
        raise RunFailedError(f"{last}\n{problem}") from None


def _command(words: list[str], said: Path) -> None:
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.chdir(said.parent)
    sys.argv = ["dlio_benchmark", *words]
    from dlio_benchmark.main import main

    main()


def _told(output: Path, batch: int, step_s: float) -> Training:
    summary = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    told = json.loads((output / "0_output.json").read_text(encoding="utf-8"))
    utilisation = summary["metric"]["train_au_percentage"]
    epochs = [told[str(number)]["proc"]["block1"] for number in range(1, len(utilisation) + 1)]
    a_step = statistics.mean(step for steps in epochs for step in steps[len(steps) // 2 :])
    return Training(
        statistics.mean(utilisation) / 100, utilisation[0] / 100, step_s / a_step, batch / a_step, epochs[0][0]
    )
