"""Read the tables of the page that lists the failing tests of Petastorm, with reasons."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Final

from petastore.errors import InvalidArgumentError

__all__ = ["PAGE", "Differences", "read"]

PAGE: Final = Path("tests", "interop", "petastorm_suite", "differences.md")
"""Path from the root of the repository."""

_KINDS: Final = {
    "Modules of inner parts": "module",
    "Tests of inner parts": "inner",
    "Different on purpose": "on purpose",
    "Left to chance": "by chance",
}
_ROW: Final = re.compile(r"^\| (`[^|]+`) \| (.+?) \|$")


@dataclasses.dataclass(frozen=True, slots=True)
class Differences:
    """Expected failures of Petastorm's tests."""

    modules: dict[str, str]
    """Reasons by module, for modules that are not run; modules are paths below `petastorm/`."""

    tests: dict[tuple[str, str], str]
    """Kind of each test or parametrized case, by module and test: `inner`, `on purpose` or `by chance`."""

    def kind_of(self, module: str, test: str) -> str | None:
        """Return the kind of a listed test or parametrized case, or None if it is not listed."""
        return self.tests.get((module, test)) or self.tests.get((module, test.partition("[")[0]))


def read(page: str) -> Differences:
    r"""Return the differences that a page lists.

    A row of its tables has one or more tests, each in backticks, and a reason. The first test has the module's name.

    Raises:
        InvalidArgumentError: A test is listed twice.

    Example:
        >>> read("## Tests of inner parts\n| `test_reader::test_one`, `::test_two` | queues |").tests
        {('test_reader', 'test_one'): 'inner', ('test_reader', 'test_two'): 'inner'}
    """
    modules: dict[str, str] = {}
    tests: dict[tuple[str, str], str] = {}
    kind: str | None = None
    for line in page.splitlines():
        if line.startswith("## "):
            kind = _KINDS.get(line.removeprefix("## "))
        row = _ROW.match(line)
        if kind is None or row is None:
            continue
        names = re.findall(r"`([^`]+)`", row[1])
        if kind == "module":
            modules.update(dict.fromkeys(names, row[2]))
            continue
        module = ""
        for name in names:
            module, test = name.partition("::")[0] or module, name.partition("::")[2]
            if (module, test) in tests:
                raise InvalidArgumentError(f"{module}::{test} is listed twice in {PAGE}; one reason is enough")
            tests[module, test] = kind
    return Differences(modules, tests)
