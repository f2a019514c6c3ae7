"""Tests of the count of code lines: blank lines, comments and docstrings are excluded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.code_lines import code_lines, main

MODULE = '''"""About the module.

Two paragraphs.
"""

import math  # a comment after code counts with its code

# A comment.
LIMIT = 3
"""How many."""


class Box:
    """A box."""

    size: int = (
        # a comment inside an expression

        LIMIT
    )
    """Its size,
    in pixels."""

    def area(self) -> str:
        """Return the area."""
        return """
first

third"""
'''


def test_code_lines_ignore_blanks_comments_and_docstrings() -> None:
    code = ["import math", "LIMIT", "class", "size", "LIMIT", ")", "def", "return", "first", "", "third"]
    assert code_lines(MODULE) == len(code)


def test_code_lines_of_an_empty_module_are_zero() -> None:
    assert code_lines("") == code_lines('"""Only a docstring."""\n') == 0


def test_code_lines_command_prints_each_package_and_the_sum(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "package"
    for name, text in {"one.py": "a = 1\n", "inner/two.py": "b = 2\nc = 3\n", "inner/deep/three.py": "d = 4\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    assert main([str(folder)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["package", "1", "files", "1", "lines"],
        ["package/inner", "2", "files", "3", "lines"],
        ["sum", "3", "files", "4", "lines"],
    ]


def test_code_lines_command_fails_when_a_folder_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "missing")]) == 2
    assert "there is no folder" in capsys.readouterr().err
