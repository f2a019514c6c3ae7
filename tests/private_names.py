"""Count tests that depend on private names of petastore or on a clock: `python -m tests.private_names [FOLDER]`.

For each file of tests it prints how many test functions, fixtures and helpers

* patch a private name of petastore (`setattr`, `delattr` or `patch` with a leading underscore, or a dotted text),
* import a private name of petastore,
* read a private attribute that some class or module of petastore has,
* assert something about a measured time.

FOLDER is a checkout of the repository; the current folder by default.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

__all__ = ["KINDS", "main", "private_attributes", "uses"]

KINDS = ("patch", "import", "read", "clock")

_Function = ast.FunctionDef | ast.AsyncFunctionDef
# Names with underscores on both sides, such as `_repr_html_`, belong to a protocol.
_PRIVATE = re.compile(r"_(?!_)\w*[^\W_]")
_DOTTED = re.compile(r"petastore(\.\w+)+")
_CLOCK = re.compile(r"\b(time|monotonic|perf_counter|process_time|thread_time)(_ns)?\(\)|\bos\.times\(\)")
_PATCHES = {"setattr", "delattr", "patch", "object"}
_NUMERIC = {"abs", "float", "int", "len", "max", "median", "min", "round", "sorted", "sum"}
# Public names of named tuples that begin with an underscore.
_PUBLIC = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}


def private_attributes(sources: Sequence[str]) -> frozenset[str]:
    """Return the private names that modules give to functions, classes, attributes and variables."""
    names: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, _Function | ast.ClassDef):
                names.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                names.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
    return frozenset(name for name in names if _PRIVATE.fullmatch(name)) - _PUBLIC


def uses(source: str, attributes: frozenset[str]) -> Counter[str]:
    """Return the number of functions of a test module with each of `KINDS`; module-level imports count one by one.

    Args:
        source: The text of the test module.
        attributes: Private names of the package under test, from `private_attributes`.
    """
    tree = ast.parse(source)
    own = private_attributes([source])
    counts = Counter({"import": sum(_is_private_import(node) for node in tree.body)})
    functions = [node for node in ast.walk(tree) if isinstance(node, _Function)]
    programs = {_name_of(target) for target, value in _assignments(tree.body) if _is_program(value)}
    clocks = _Clocks(frozenset(programs)).with_timers(functions)
    for function in functions:
        nodes = list(_own_nodes(function))
        counts["patch"] += any(_is_patch(node, attributes) for node in nodes)
        counts["import"] += any(_is_private_import(node) for node in nodes)
        counts["read"] += any(_is_read(node, attributes - own) for node in nodes)
        counts["clock"] += clocks.are_asserted(function)
    return counts


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of nested functions, which are counted separately."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, _Function):
            yield from _own_nodes(node)


def _is_private_import(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "petastore":
        parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
    elif isinstance(node, ast.Import):
        parts = [part for alias in node.names if _DOTTED.match(alias.name) for part in alias.name.split(".")]
    else:
        return False
    return any(_PRIVATE.fullmatch(part) for part in parts)


def _is_patch(node: ast.AST, attributes: frozenset[str]) -> bool:
    if not isinstance(node, ast.Call) or _name_of(node.func) not in _PATCHES:
        return False
    texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return any(text in attributes or _DOTTED.fullmatch(text) for text in texts)


def _is_read(node: ast.AST, attributes: frozenset[str]) -> bool:
    if not isinstance(node, ast.Attribute) or node.attr not in attributes:
        return False
    return not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls", *sys.stdlib_module_names})


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Clocks:
    """The names and functions that yield times in a module or in one of its functions."""

    programs: frozenset[str]
    """Names of strings that are programs which read a clock."""

    timers: frozenset[str] = frozenset()
    """Functions that return a time."""

    names: frozenset[str] = frozenset()
    """Names that hold a time."""

    def is_time(self, node: ast.AST) -> bool:
        """Return whether an expression is computed from a clock by arithmetic, comparisons or numeric functions."""
        if isinstance(node, ast.Name | ast.Attribute):
            return _name_of(node) in self.names
        if not isinstance(node, ast.Call):
            return any(map(self.is_time, ast.iter_child_nodes(node)))
        if _CLOCK.fullmatch(ast.unparse(node).removeprefix("time.")) or _name_of(node.func) in self.timers:
            return True
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if _name_of(node.func) in _NUMERIC:
            return any(map(self.is_time, arguments))
        return any(_is_program(part) or _name_of(part) in self.programs for one in arguments for part in ast.walk(one))

    def stored(self, target: ast.expr, value: ast.expr) -> Iterator[str]:
        """Yield the names of an assignment that hold a time."""
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from self.stored(one, its)
        elif self.is_time(value):
            yield from filter(None, map(_name_of, target.elts if isinstance(target, ast.Tuple) else [target]))

    def within(self, function: _Function) -> _Clocks:
        """Return a copy that also has the names of a function that hold a time."""
        assigned = list(_assignments(_own_nodes(function)))
        programs = {_name_of(target) for target, value in assigned if _is_program(value)}
        clocks = dataclasses.replace(self, programs=self.programs | programs)
        while True:
            names = clocks.names.union(*(clocks.stored(target, value) for target, value in assigned))
            if names == clocks.names:
                return clocks
            clocks = dataclasses.replace(clocks, names=names)

    def with_timers(self, functions: Sequence[_Function]) -> _Clocks:
        """Return a copy that also has the functions that return a time."""
        timers = self.timers.union(function.name for function in functions if self._returns_a_time(function))
        return self if timers == self.timers else dataclasses.replace(self, timers=timers).with_timers(functions)

    def _returns_a_time(self, function: _Function) -> bool:
        clocks = self.within(function)
        returns = [node.value for node in _own_nodes(function) if isinstance(node, ast.Return | ast.Yield)]
        return any(clocks.is_time(value) for value in returns if value is not None)

    def are_asserted(self, function: _Function) -> bool:
        """Return whether a function asserts something about a time."""
        clocks = self.within(function)
        return any(isinstance(node, ast.Assert) and clocks.is_time(node.test) for node in _own_nodes(function))


def _is_program(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return any(map(_is_program, node.values))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CLOCK.search(node.value))


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            yield from ((target, node.value) for target in node.targets)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            yield node.target, node.value


def main(arguments: Sequence[str]) -> int:
    """Print the counts of each test file that has any, and the sums."""
    parser = argparse.ArgumentParser(prog="python -m tests.private_names", description="Tests that know private names.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="a checkout; this one by default")
    folder = parser.parse_args(arguments).folder
    attributes = private_attributes([path.read_text(encoding="utf-8") for path in (folder / "petastore").rglob("*.py")])
    sums: Counter[str] = Counter()
    print(*(f"{kind:>6}" for kind in KINDS))
    for path in sorted((folder / "tests").rglob("*.py")):
        counts = uses(path.read_text(encoding="utf-8"), attributes)
        sums += counts
        if counts.total():
            print(*(f"{counts[kind]:6}" for kind in KINDS), f" {path.relative_to(folder)}")
    print(*(f"{sums[kind]:6}" for kind in KINDS), " sum")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
