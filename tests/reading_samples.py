"""Random samples of the documentation for an independent reader: `python -m tests.reading_samples SEED [COUNT]`.

Prints COUNT (40) sentences of the README, guides, explanation, reference and changelog, and as many docstrings,
comments, errors, test names and texts of the command line. A reader who did not write them counts those that they
understand at first reading; 95 % of each kind is the goal. The same seed draws the same samples from the same commit.
"""

from __future__ import annotations

import ast
import io
import random
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(seed: int, count: int = 40) -> None:
    """Print the samples of each kind, numbered."""
    chosen = random.Random(seed)  # noqa: S311 - not for secrets
    for kind, texts in samples().items():
        print(f"\n## {kind} ({min(count, len(texts))} of {len(texts)})\n")
        for number, text in enumerate(chosen.sample(texts, min(count, len(texts))), 1):
            print(f"{number}. {text}")


def samples() -> dict[str, list[str]]:
    """Return all texts by kind, each with the file that contains it."""
    sources = list(tracked("petastore/*.py"))
    docstrings = [one for path in sources for one in docstrings_of(path)]
    tests = tracked("tests/**/test_*.py", "neighbours/**/test_*.py")
    return {
        "README": list(sentences(tracked("README.md"))),
        "guides": list(sentences(tracked("docs/how-to/*.md", "docs/tutorials/*.md", "docs/get-started/*.md"))),
        "explanation": list(sentences(tracked("docs/explanation/*.md"))),
        "reference": list(sentences(tracked("docs/reference/*.md"))),
        "changelog": list(sentences(tracked("CHANGELOG.md"))),
        "module docstrings": [text for kind, text in docstrings if kind == "module"],
        "public docstrings": [text for kind, text in docstrings if kind == "public"],
        "private docstrings": [text for kind, text in docstrings if kind == "private"],
        "comments": [comment for path in sources for comment in comments_of(path)],
        "errors": [error for path in sources for error in errors_of(path)],
        "command line": [text for path in tracked("petastore/cli/*.py") for text in helps_of(path)],
        "test names": [
            f"{named(p)}: {name}" for p in tests for name in re.findall(r"(?m)^def (test_\w+)", p.read_text())
        ],
    }


def tracked(*patterns: str) -> list[Path]:
    """Return the files of the repository that match some patterns."""
    asked = [f":(glob){pattern}" if "**" in pattern else pattern for pattern in patterns]
    listed = subprocess.run(["git", "ls-files", *asked], cwd=ROOT, check=True, capture_output=True, text=True)
    return [ROOT / name for name in listed.stdout.split()]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def sentences(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the sentences of Markdown pages, without code, tables, headings and comments."""
    for path in paths:
        text = re.sub(
            r"(?s)```.*?```|<!--.*?-->|</?(?:a|b|br|div|i|img|p|picture|source|span)\b[^>]*>", "", path.read_text()
        )
        for paragraph in re.split(r"\n\s*\n", text):
            if not paragraph.strip().startswith(("#", "|", "!", "---", ":::")):
                flat = " ".join(paragraph.split())
                yield from (
                    f"{named(path)}: {one}"
                    for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z`*\[])", flat)
                    if len(one.split()) > 4
                )


def docstrings_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the kind (module, public, private) and text of each docstring, without its example."""
    tree = ast.parse(path.read_text())
    exported = {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
        for name in ast.literal_eval(node.value)
    }

    def inside(node: ast.AST, names: tuple[str, ...], *, is_public: bool) -> Iterator[tuple[str, str]]:
        for one in getattr(node, "body", ()):
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                public = is_public and not one.name.startswith("_") and bool(names or one.name in exported)
                text = (ast.get_docstring(one) or "").split("Example:")[0].strip()
                if text:
                    yield "public" if public else "private", f"{named(path)} {'.'.join([*names, one.name])}: {text}"
                if isinstance(one, ast.ClassDef):
                    yield from inside(one, (*names, one.name), is_public=public)

    if of_module := ast.get_docstring(tree):
        yield "module", f"{named(path)}: {of_module}"
    yield from inside(tree, (), is_public=True)


def comments_of(path: Path) -> Iterator[str]:
    """Yield comments of at least five words, each with its line of code."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if (
            token.type == tokenize.COMMENT
            and len(token.string.split()) > 4
            and not re.match(r"# ?(noqa|type:)", token.string)
        ):
            yield f"{named(path)}:{token.start[0]} {token.line.strip()}"


def errors_of(path: Path) -> Iterator[str]:
    """Yield the messages of exceptions that are raised, as they are written in the code."""
    source = path.read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            message = " ".join((ast.get_source_segment(source, node.exc.args[0]) or "").split())
            if len(message.split()) > 6:
                yield f"{named(path)}:{node.lineno} {message}"


def helps_of(path: Path) -> Iterator[str]:
    """Yield the help texts of options and arguments."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "help" and isinstance(node.value, ast.Constant):
            yield f"{named(path)}: {node.value.value!s}"


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
