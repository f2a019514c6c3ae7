"""Workloads: two of MLPerf Storage, with as many rows as are read in a few seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Final

__all__ = ["DATASET", "EPOCHS", "TENSORS", "WORKLOADS", "Workload"]

DATASET: Final = "petastore"
"""The folder of Parquet files, beside the folder `train` of what DLIO is shown."""

EPOCHS: Final = 5
"""Of a run: what MLPerf Storage has for pictures. For tensors it has one, of 25,776 steps."""

TENSORS: Final = {"t5_encodings": 524_328, "clip_encodings": 409, "mean": 8_232, "logvar": 8_232, "timestamp": 7}
"""Columns of a row of Flux: float32 in each."""


@dataclasses.dataclass(frozen=True)
class Workload:
    """A workload, as `configs/workload/NAME.yaml` has it for DLIO.

    Args:
        name: Of the file.
        what: A line for the page.
        batch: Rows of a step.
        step_s: What MLPerf Storage says that one step takes, in seconds.
        files: Files that DLIO is shown.
        rows_a_file: Rows of each.
        rows_a_group: Rows of a row group of the Parquet files.
        configured_steps: Steps of an epoch with `step_s`, which may be long.
        released: Whether DLIO's release has a reader for it.
    """

    name: str
    what: str
    batch: int
    step_s: float
    files: int
    rows_a_file: int
    rows_a_group: int
    configured_steps: int
    released: bool

    @property
    def rows(self) -> int:
        """Of the whole dataset: whole batches."""
        return self.files * self.rows_a_file

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self.rows // self.batch

    def scaled(self, share: float) -> Workload:
        """The same with a share of the files, three batches at least."""
        least = -(-3 * self.batch // self.rows_a_file)
        scaled = dataclasses.replace(self, files=max(round(self.files * share), least))
        return dataclasses.replace(scaled, configured_steps=min(self.configured_steps, scaled.steps))

    def folder(self, data: Path) -> Path:
        """Where its data lie."""
        return data / f"{self.name}-{self.rows}"


WORKLOADS: Final = {
    workload.name: workload
    for workload in (
        Workload(
            name="pictures",
            what="400 gray JPEGs of 338 × 338 a step, as DLIO generates them: random pixels, 65 kB each",
            batch=400,
            step_s=0.224,
            files=6_400,
            rows_a_file=1,
            rows_a_group=128,
            configured_steps=16,
            released=True,
        ),
        Workload(
            name="tensors",
            what="48 rows a step, of five tensors and 2.16 MB each: the columns of Flux in uncompressed Parquet",
            batch=48,
            step_s=1.35,
            files=8,
            rows_a_file=144,
            rows_a_group=48,
            configured_steps=6,
            released=False,
        ),
    )
}
