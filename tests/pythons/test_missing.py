"""Tests of the plugin for missing packages: such tests are skipped with the package's name, other failures remain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = {
    "test_whole.py": "import nosuch_package.part\ndef test(): pass\n",
    "test_parts.py": """
import subprocess, sys
import pytest

def test_that_passes(): pass

def test_that_imports(): import nosuch_package

@pytest.fixture
def made(): import nosuch_package

def test_with_a_fixture(made): pass

def test_that_runs_a_program():
    done = subprocess.run([sys.executable, "-c", "import nosuch_package"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

def test_of_an_extra():
    from petastore.errors import MissingExtraError
    raise MissingExtraError("this", package="nosuch_package", extra="torch")

def test_that_is_wrong(): assert 1 == 2

def test_that_looks_for_what_is_there():
    raise AssertionError("No module named 'json'")
""",
}


def test_tests_of_a_missing_package_are_skipped_and_other_failures_stay(repository: Path, tmp_path: Path) -> None:
    for name, text in TESTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    options = ["-q", "-rs", "-p", "no:cacheprovider", "-p", "tests.pythons.missing", "-c", "/dev/null"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "2 failed, 1 passed, 5 skipped" in ran.stdout
    assert "_ test_that_is_wrong _" in ran.stdout
    assert "_ test_that_looks_for_what_is_there _" in ran.stdout
    assert ran.stdout.count("needs nosuch_package") == 2  # one for the file, one for four tests
