"""Draw mutants: small changes of the source, each of which some test should detect.

Run by `make mutants`, with the Python of an environment that has cosmic-ray, whose operators change the code.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast_from_path
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

PACKAGES = ("plan", "selecting", "codecs", "cache", "storage")


def main() -> None:
    """Write the drawn mutants as JSON: package, file, line, operator and the mutated source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--each", type=int, default=44, help="mutants of each package")
    parser.add_argument("--unchanged-since", help="draw only from files that are the same at this commit")
    options = parser.parse_args()
    drawn = [
        mutant
        for package in PACKAGES
        for mutant in _drawn(_files(package, options.unchanged_since), package, options.each)
    ]
    options.output.write_text(json.dumps(drawn, indent=1), encoding="utf-8")
    print(f"{len(drawn)} mutants of {', '.join(PACKAGES)}")


def _files(package: str, commit: str | None) -> list[Path]:
    files = sorted(Path("petastore", package).rglob("*.py"))
    if commit is None:
        return files
    return [file for file in files if subprocess.run(["git", "diff", "--quiet", commit, "--", file]).returncode == 0]


def _drawn(files: list[Path], package: str, most: int) -> Iterator[dict[str, Any]]:
    """Draw lines first and then one change of each line, so that operators with many variants are not more likely."""
    lines: dict[tuple[Path, int], list[tuple[str, int]]] = {}
    for file in files:
        nodes = list(ast_nodes(get_ast_from_path(file)))
        for name in operator_names():
            operator = get_operator(name)
            if operator.arguments():
                continue
            positions = [begin for node in nodes for begin, _ in operator().mutation_positions(node)]
            for occurrence, (line, _) in enumerate(positions):
                lines.setdefault((file, line), []).append((name, occurrence))
    drawn = 0
    for file, line in sorted(lines, key=lambda place: _hash(*place)):
        changes = sorted(lines[file, line], key=lambda change: _hash(file, line, *change))
        name, occurrence = changes[0]
        source = file.read_text(encoding="utf-8")
        try:
            mutated = mutate_code(source, get_operator(name)(), occurrence)
        except AttributeError:  # the operator does not support this syntax
            continue
        if mutated is None or _behaviour(mutated) in (None, _behaviour(source)):
            continue
        yield {"package": package, "file": str(file), "line": line, "operator": name, "mutated": mutated}
        drawn += 1
        if drawn == most:
            return


def _hash(*parts: object) -> bytes:
    return hashlib.sha256(repr(parts).encode()).digest()


def _behaviour(source: str) -> str | None:
    """Return the AST without annotations, which are never evaluated, or None if the code is invalid."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            node.returns = None
        elif isinstance(node, ast.AnnAssign):
            node.annotation = ast.Constant(None)
    return ast.dump(tree)


if __name__ == "__main__":
    main()
