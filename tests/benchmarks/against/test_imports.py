"""Tests of the import benchmark: it measures the source tree under test, not an installed petastore."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.against import imports
from benchmarks.against.imports import import_seconds
from benchmarks.bench.process import TaskFailedError


@pytest.fixture(autouse=True)
def _one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "TRIES", 1)


def package(root: Path, source: str) -> Path:
    (root / "petastore").mkdir()
    (root / "petastore" / "__init__.py").write_text(source, encoding="utf-8")
    return root


def test_import_seconds_measures_the_import_only(tmp_path: Path) -> None:
    hours = package(tmp_path, "import time\nreal = time.perf_counter\ntime.perf_counter = lambda: real() + 7200\n")
    assert round(import_seconds(hours) / 3600) == 2


def test_failed_import_reports_the_cause(tmp_path: Path) -> None:
    with pytest.raises(TaskFailedError, match="no moon tonight"):
        import_seconds(package(tmp_path, "raise OSError('no moon tonight')\n"))


def test_import_from_a_folder_without_petastore_raises(tmp_path: Path) -> None:
    with pytest.raises(TaskFailedError, match=r"which is not below|No module named"):
        import_seconds(tmp_path)
