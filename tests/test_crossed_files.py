"""Tests of the code path of a batch: few source files run for it, and a reader instantiates few classes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MOST_FILES = 20  # 19 usually, and one more if a thread of the pool starts late
MOST_CLASSES = 115  # 113 usually, and two more if workers wait for each other


def printed_by(program: str, folder: Path, repository: Path) -> set[str]:
    ran = subprocess.run(
        [sys.executable, "-m", program, str(folder)], cwd=repository, check=True, capture_output=True, text=True
    )
    return set(ran.stdout.split())


@pytest.mark.slow
def test_reading_a_batch_runs_code_of_few_source_files(tmp_path: Path, repository: Path) -> None:
    crossed = printed_by("tests.crossed_files", tmp_path / "frames", repository)
    assert {"readers/pipeline.py", "readers/loaded/row_group_reader.py", "adapters/torch/tensors.py"} <= crossed
    assert len(crossed) <= MOST_FILES, crossed


@pytest.mark.slow
def test_reading_the_first_batch_instantiates_few_classes(tmp_path: Path, repository: Path) -> None:
    made = printed_by("tests.crossed_classes", tmp_path / "frames", repository)
    assert {"petastore.readers.reader.Reader", "petastore.plan.batches.spans.Span"} <= made
    print(f"{len(made)} classes of petastore are instantiated between make_reader and a tensor")
    assert len(made) <= MOST_CLASSES, made
