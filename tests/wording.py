"""Count phrases that hide the meaning of a text: `python -m tests.wording`, part of `make check`.

Each count may only fall. If one is lower than its limit in `tests/wording.json`, `--lower` writes the new limits.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PATTERNS", "Pattern", "counts", "main"]

_LIMITS = Path(__file__).with_name("wording.json")
_TEXTS = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs/**/*.md")
_CODE = ("petastore/**/*.py",)


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A phrase to avoid, where it is looked for, and what to write instead."""

    regex: re.Pattern[str]
    globs: tuple[str, ...]
    instead: str


PATTERNS = {
    "sentences that begin with What or Who": Pattern(
        re.compile(r"(^|[.:] )(\* )?(\*\*)?(What|Who|Whoever|Whatever) [a-z]"),
        _TEXTS,
        "begin with the thing or the verb",
    ),
    "is no X": Pattern(
        re.compile(r"\b(is|are) no (more )?[a-z]+"), (*_CODE, *_TEXTS), '"is not a …", or "must be …, got …"'
    ),
    "cannot be, as a rule": Pattern(re.compile(r"cannot be[:;,.]"), _CODE, '"must be …, got …"'),
    "words that hide a term": Pattern(
        re.compile(
            r"\b(anew|goes on|go on|beside|whoever|lies|a training|pictures?|by lot|once more)\b", re.IGNORECASE
        ),
        _TEXTS,
        "the term: again, resume, next to, the caller, is stored, a training run, image, randomly",
    ),
    "docstrings that begin with What, Of, As": Pattern(
        re.compile(r'"""(What|Who|Whose|Which|Of|As|By) '), _CODE, "an imperative, or a noun phrase"
    ),
    "test names with what or who": Pattern(
        re.compile(r"^ *def test_(\w*_)?(what|who|whoever|which)_"), ("tests/**/test_*.py",), "test_<unit>_<behaviour>"
    ),
}


def counts(root: Path) -> dict[str, int]:
    """Return how many lines of the repository have each pattern."""
    return {name: sum(1 for _ in _lines(root, pattern)) for name, pattern in PATTERNS.items()}


def main(arguments: list[str] | None = None, root: Path = Path(), limits_file: Path = _LIMITS) -> int:
    """Compare the counts with the limits; 1 if a count rose.

    Args:
        arguments: The command line; None takes that of the process.
        root: The repository.
        limits_file: JSON with the largest allowed count of each pattern.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="write the present counts as limits where they are lower")
    parser.add_argument("--show", metavar="PATTERN", choices=PATTERNS, help="print the lines that have this pattern")
    options = parser.parse_args(arguments)
    if options.show:
        print("\n".join(_lines(root, PATTERNS[options.show])))
        return 0
    limits = json.loads(limits_file.read_text(encoding="utf-8")) if limits_file.exists() else {}
    present = counts(root)
    risen = {name: count for name, count in present.items() if count > limits.get(name, count)}
    for name, count in risen.items():
        print(f"wording: {name}: {count} lines, at most {limits[name]}. Write {PATTERNS[name].instead}.")
        print(f"wording: see them with: python -m tests.wording --show '{name}'")
    if options.lower and not risen:
        limits_file.write_text(json.dumps(present, indent=1) + "\n", encoding="utf-8")
    return 1 if risen else 0


def _lines(root: Path, pattern: Pattern) -> Iterator[str]:
    for glob in pattern.globs:
        for path in sorted(root.glob(glob)):
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if pattern.regex.search(line):
                    yield f"{path.relative_to(root)}:{number}: {line.strip()}"


if __name__ == "__main__":
    sys.exit(main())
