"""Write the images in one format: `python -m benchmarks.storage.write_images FORMAT SCALE VALUES FOLDER`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from benchmarks.bench.values import Values
from benchmarks.storage.datasets import workload_of

__all__ = ["FORMATS", "write_format"]

FORMATS = {
    "petastore": "petastore_files",
    "petastorm": "petastorm_files",
    "litdata": "litdata_torch",
    "mosaic": "mosaic_torch",
}
"""Each by the module whose `write` makes it, in the environment of its name."""


def write_format(name: str, scale: float, values: Path, folder: Path) -> None:
    """Writes a format; this environment has what that takes."""
    workload = workload_of("images", scale)
    module = importlib.import_module(f"benchmarks.bench.contenders.{FORMATS[name]}")
    module.write(workload, Values(values, workload), folder)


if __name__ == "__main__":
    write_format(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]))
