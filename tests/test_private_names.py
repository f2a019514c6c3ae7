"""Tests of the count of private names and clocks: it finds each use in tests, and ignores public names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.private_names import KINDS, main, private_attributes, uses

PACKAGE = """
_LIMIT = 3

class Reader:
    def __init__(self):
        self._rows = []

    def _read(self): ...

    def _repr_html_(self): ...

def _exit(): ...
"""
ATTRIBUTES = private_attributes([PACKAGE])

FOUND = {
    "a patched constant": ("patch", "def test(patch):\n  patch.setattr(reader, '_LIMIT', 1)"),
    "a patched dotted text": ("patch", "def test(patch):\n  patch.setattr('petastore.readers.reader.x', 1)"),
    "an imported name": ("import", "from petastore.readers import _read"),
    "a module with a private name": ("import", "import petastore.readers._inner.reader"),
    "an import in a test": ("import", "def test():\n  from petastore._inner import Reader"),
    "an attribute": ("read", "def test(reader):\n  assert reader._rows == []"),
    "a time limit": (
        "clock",
        "def test():\n  began = time.monotonic()\n  work()\n  assert time.monotonic() - began < 2",
    ),
    "a time of two names": (
        "clock",
        "def test():\n  a, b = time.thread_time(), work()\n  c = max(a, 1)\n  assert 0 < c",
    ),
    "a helper that measures": ("clock", "def took():\n  return perf_counter() - 1\n\ndef test():\n  assert took() < 3"),
    "a program that measures": ("clock", "def test():\n  code = 'print(time.time())'\n  assert float(run(code)) < 3"),
}
LEFT = {
    "a public name": "def test(patch):\n  patch.setattr(reader, 'LIMIT', 1)",
    "a private name of others": "def test(row):\n  assert row._fields == ()\n  os._exit(1)",
    "a name of a protocol": "def test(reader):\n  assert reader._repr_html_()",
    "an attribute of the test's own class": "class Reader:\n  def rows(self):\n    return self._rows",
    "an attribute that the test's own class has": "class Fake:\n  _rows = 1\n\ndef test(fake):\n  assert fake._rows",
    "a public import": "from petastore.readers import Reader, __all__",
    "a time that is only given": "def test():\n  found = parse(now=time.time())\n  assert found.ok",
    "a loop with a deadline": "def test():\n  end = time.time()\n  while time.time() < end:\n    pass\n  assert done",
}


def test_scan_of_tests_finds_uses_of_private_names_and_patched_clocks() -> None:
    found = {name: dict(+uses(source, ATTRIBUTES)) for name, (_, source) in FOUND.items()}
    assert found == {name: {kind: 1} for name, (kind, _) in FOUND.items()}


def test_scan_of_tests_ignores_public_names_and_unasserted_clock_reads() -> None:
    assert {name: dict(+uses(source, ATTRIBUTES)) for name, source in LEFT.items()} == {name: {} for name in LEFT}


def test_private_names_command_prints_a_line_per_file_and_sums(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "petastore").mkdir()
    (tmp_path / "petastore" / "reader.py").write_text(PACKAGE, encoding="utf-8")
    (tmp_path / "tests").mkdir()
    for number, (_, source) in enumerate(FOUND.values()):
        (tmp_path / "tests" / f"test_{number}.py").write_text(source, encoding="utf-8")
    assert main([str(tmp_path)]) == 0
    head, *files, last = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == list(KINDS)
    assert len(files) == len(FOUND)
    assert last == ["2", "3", "1", "4", "sum"]
    shutil.rmtree(tmp_path / "tests")
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.split()[-5:] == ["0", "0", "0", "0", "sum"]
