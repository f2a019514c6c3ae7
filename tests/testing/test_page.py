"""Tests of the documentation page about codec laws: its codec passes, and its example mistake fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

LEFT_OUT = ".astype(bool)"


@pytest.fixture
def program(repository: Path) -> str:
    """Return the program that the page says to save as `test_bits.py`."""
    page = (repository / "docs" / "how-to" / "test-a-codec-of-your-own.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]


def run(text: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Write the golden file, as the page says, and run the codec laws."""
    path = folder / "test_bits.py"
    path.write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, path], cwd=folder, check=True)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(path)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_documented_codec_passes_codec_laws(program: str, tmp_path: Path) -> None:
    ran = run(program, tmp_path)
    assert ran.returncode == 0, ran.stdout
    assert (tmp_path / "golden" / "mask.arrow").exists()


@pytest.mark.slow
def test_documented_codec_mistake_fails_the_documented_test(program: str, tmp_path: Path) -> None:
    assert program.count(LEFT_OUT) == 1
    ran = run(program.replace(LEFT_OUT, ""), tmp_path, "-k", "test_decode_returns_the_encoded_value")
    assert ran.returncode == 1
    assert "FAILED test_bits.py::TestBitsCodec::test_decode_returns_the_encoded_value" in ran.stdout
