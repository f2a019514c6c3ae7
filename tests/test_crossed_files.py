"""A batch takes a short way: few files of the package run for it, once a reader is under way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from petastore.storage.row_groups.verified import tells_of_writes, version_of

MOST_FILES = 22
OF_VERIFYING = {"storage/footers/thrift.py", "storage/pages/damage.py", "storage/pages/headers.py"}


@pytest.mark.slow
def test_a_batch_crosses_few_files(tmp_path: Path, repository: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.crossed_files", str(tmp_path / "frames")],
        cwd=repository, check=True, capture_output=True, text=True,
    )  # fmt: skip
    crossed = set(ran.stdout.split())
    assert {"readers/pipeline.py", "readers/loaded/loader.py", "adapters/torch/tensors.py"} <= crossed
    version = version_of(str(tmp_path))
    assert version is not None
    if not tells_of_writes(str(tmp_path), version):  # such a file system is verified in every epoch
        crossed -= OF_VERIFYING
    assert len(crossed) <= MOST_FILES, crossed
