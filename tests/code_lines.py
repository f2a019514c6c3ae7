"""Count files and lines of code by package: `python -m tests.code_lines [FOLDER ...]`, `petastore` by default.

Blank lines, comments and docstrings are left out. A docstring is a statement that is only a string, so attribute
docstrings count as such.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

__all__ = ["code_lines", "main"]

_NOT_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


def code_lines(source: str) -> int:
    r"""Return the number of lines of a module that hold code.

    Args:
        source: The text of the module.

    Example:
        >>> code_lines('"About."\n\nlimit = 3  # most\n"How many."\n# Note.\n')
        1
    """
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - _docstring_lines(source))


def _docstring_lines(source: str) -> set[int]:
    return {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def _packages(folder: Path) -> dict[str, list[Path]]:
    """Return the modules of a folder by package: its subfolders, and the folder itself for modules directly in it."""
    packages: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        packages["/".join((folder.name, *parts[:1])) if len(parts) > 1 else folder.name].append(path)
    return packages


def main(arguments: Sequence[str]) -> int:
    """Print a line for each package, and the sum."""
    parser = argparse.ArgumentParser(prog="python -m tests.code_lines", description="Lines of code by package.")
    parser.add_argument("folders", nargs="*", type=Path, help="folders to count; petastore by default")
    folders = parser.parse_args(arguments).folders or [Path("petastore")]
    files = lines = 0
    for folder in folders:
        if not folder.is_dir():
            print(f"code_lines: there is no folder {folder}", file=sys.stderr)
            return 2
        for package, paths in sorted(_packages(folder.resolve()).items()):
            count = sum(code_lines(path.read_text(encoding="utf-8")) for path in paths)
            print(f"{package:<30} {len(paths):5,} files {count:8,} lines")
            files, lines = files + len(paths), lines + count
    print(f"{'sum':<30} {files:5,} files {lines:8,} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
