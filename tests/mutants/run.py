"""Run the tests against each mutant, and record which mutants are killed: `make mutants`.

Tests of the mutant's package and of the public API run once under coverage. Then the tests that reach a mutant's line
run against it, first in the quick tier.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

DOORS = (
    "tests/test_front.py",
    "tests/test_plain_parquet.py",
    "tests/test_petastorm_datasets.py",
    "tests/readers/test_reader.py",
    "tests/readers/test_reader_state.py",
    "tests/readers/test_local_disk_cache.py",
    "tests/adapters/torch/test_loader.py",
    "tests/writers",
)
TESTS = {
    "plan": ("tests/plan", "petastore/plan"),
    "selecting": ("tests/selecting", "tests/expressions", "tests/predicates", "petastore/selecting"),
    "codecs": ("tests/codecs", "tests/decoding", "tests/schema", "petastore/codecs"),
    "cache": ("tests/cache", "petastore/cache"),
    "storage": ("tests/storage", "tests/dataset", "petastore/storage"),
}
_LONGEST_S = 1800


def main() -> int:
    """Run all mutants that have no result yet, then print how many were killed, by package."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mutants", type=Path, help="what `tests.mutants.draw` wrote")
    parser.add_argument("results", type=Path, help="one JSON line a mutant; continued where it exists")
    parser.add_argument(
        "--tree", type=Path, default=Path(), help="checkout whose source is mutated; no other use of it"
    )
    parser.add_argument("--only-full", action="store_true", help="the checkout has one tier")
    parser.add_argument("--part", default="0/1", help="1/2: the second half, for another process with its own checkout")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    mutants = json.loads(options.mutants.read_text(encoding="utf-8"))[part::parts]
    results = _read(options.results)
    for mutant in mutants:
        key = f"{mutant['file']}:{mutant['line']} {mutant['operator']}"
        if key in results:
            continue
        results[key] = {"mutant": key, "package": mutant["package"], **_tried(mutant, options.tree, options.only_full)}
        with options.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(results[key]) + "\n")
        print(json.dumps(results[key]), flush=True)
    counts = Counter((result["package"], tier) for result in results.values() for tier in result["killed"])
    total = Counter(result["package"] for result in results.values())
    for package, number in total.items():
        killed = {tier: count for (name, tier), count in counts.items() if name == package}
        print(f"{package:10} {number:4} mutants, killed: {killed}")
    return 0


def _read(path: Path) -> dict[str, dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {result["mutant"]: result for result in map(json.loads, lines)}


def _tried(mutant: dict[str, Any], tree: Path, only_full: bool) -> dict[str, Any]:
    """Run tests against one mutant; `test-all` kills all mutants of `test`: same tests at full size."""
    path = tree / mutant["file"]
    source = path.read_text(encoding="utf-8")
    path.write_text(mutant["mutated"], encoding="utf-8")
    try:
        for tier in ("test-all",) if only_full else ("test", "test-all"):
            tests = _reaching(mutant, tree, tier)
            killer = _killer(tests, tree, tier)
            if killer:
                return {"killed": ["test", "test-all"] if tier == "test" else [tier], "by": killer}
        return {"killed": [], "by": f"none of {len(tests)}"}
    finally:
        path.write_text(source, encoding="utf-8")


def _reaching(mutant: dict[str, Any], tree: Path, tier: str) -> list[str]:
    """Return the tests that run the line; all tests of the package if only the import runs it."""
    from coverage import CoverageData

    data = CoverageData(str(_covered(mutant["package"], tree, tier)))
    data.read()
    contexts = data.contexts_by_lineno(str((tree / mutant["file"]).resolve())).get(mutant["line"], [])
    tests = {context.rpartition("|")[0] for context in contexts if context}  # the part before the phase of the test
    return _quickest_first(tests, mutant["package"], tree, tier) if tests else list(TESTS[mutant["package"]])


def _quickest_first(tests: set[str], package: str, tree: Path, tier: str) -> list[str]:
    """Sort tests by file: first those of the package, then those of the public API; quick files before slow ones."""
    seconds = json.loads((tree / "tests" / "durations.json").read_text(encoding="utf-8"))[tier]

    def place(test: str) -> tuple[bool, float, str]:
        file = test.partition("::")[0]
        return not file.startswith(TESTS[package]), seconds.get(file, 0.0), test

    return sorted(tests, key=place)


def _covered(package: str, tree: Path, tier: str) -> Path:
    """Run the tests of a package and of the public API once, without mutants, and return the coverage file."""
    path = (tree / ".bench" / "mutants" / f"{package}-{tier}.coverage").resolve()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        wanted = [name for name in (*TESTS[package], *DOORS) if (tree / name).exists()]
        options = [f"--cov=petastore.{package}", "--cov-context=test", "--cov-report=", *wanted]
        subprocess.run(["git", "stash", "-q"], cwd=tree, check=True)  # stashes the mutant
        try:
            _pytest(options, tree, tier, COVERAGE_FILE=f"{path}.part")
        finally:
            subprocess.run(["git", "stash", "pop", "-q"], cwd=tree, check=True)
        Path(f"{path}.part").rename(path)
    return path


def _killer(tests: list[str], tree: Path, tier: str) -> str:
    """Return the first test that fails; empty if all pass."""
    arguments = (tree / ".bench" / "mutants" / "arguments.txt").resolve()
    arguments.write_text("\n".join(tests), encoding="utf-8")
    try:
        ran = _pytest(["-x", f"@{arguments}"], tree, tier)
    except subprocess.TimeoutExpired:
        return "timeout"
    if ran.returncode in (0, 5):
        return ""
    assert ran.returncode != pytest.ExitCode.USAGE_ERROR or "ImportError" in ran.stderr + ran.stdout, ran.stderr
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", ran.stdout, re.MULTILINE)
    return failed[1] if failed else f"exit code {ran.returncode}"


def _pytest(options: list[str], tree: Path, tier: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # Without tests.durations, which would start the slowest files first.
    plugins = [option for name in ("cacheprovider", "xdist", "tests.durations") for option in ("-p", f"no:{name}")]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, *options]
    paths = [str(tree.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Without bytecode, because Python would not notice a mutant of the same size, written within the same second.
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": os.pathsep.join(paths)}
    environment |= {"PETASTORE_TESTS": "all"} if tier == "test-all" else {}
    return subprocess.run(
        command, cwd=tree, env=os.environ | environment, capture_output=True, text=True, timeout=_LONGEST_S, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
