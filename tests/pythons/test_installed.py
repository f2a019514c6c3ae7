"""Tests of the plugin that rejects a petastore which is not the installed one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_petastore_that_is_not_installed_here_raises(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "test_nothing.py").write_text("def test(): pass\n", encoding="utf-8")
    (tmp_path / "petastore").mkdir()
    (tmp_path / "petastore" / "__init__.py").write_text("", encoding="utf-8")
    plugin = (repository / "tests" / "pythons" / "installed.py").read_text(encoding="utf-8")
    (tmp_path / "installed.py").write_text(plugin, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "installed", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    ran = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 4, ran.stdout
    assert f"petastore is {tmp_path / 'petastore' / '__init__.py'}, and not what is installed in" in ran.stderr
