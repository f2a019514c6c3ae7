"""Tests of building Horovod's wheel: an existing wheel is reused, and missing build tools are named."""

from __future__ import annotations

import sys
from pathlib import Path

from neighbours.conftest import Run

BUILD = [sys.executable, "neighbours/horovod/build_wheel.py"]


def test_build_wheel_reuses_an_existing_wheel(run: Run) -> None:
    wheel = Path(run(BUILD, seconds=20).strip())
    assert wheel.is_file()
    assert wheel.name.startswith("horovod-0.28.1-")
    assert "_torch-" in wheel.parent.name


def test_build_wheel_without_a_compiler_names_packages_to_install(run: Run, tmp_path: Path) -> None:
    bare = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    assert "needs CMake and a C++ compiler on PATH" in run(BUILD, environment=bare, fails=True)
    assert list(tmp_path.iterdir()) == []
