"""The core's tests on each Python of this machine, against the installed wheel: `python -m tests.pythons [PYTHON ...]`.

One wheel is built and installed into an environment for each Python, with the core's dependencies, small extras and
what tests need, at the releases that `constraints.txt` names. Tests run in a folder in which there is no `petastore`.
Everything is kept in `.pythons`. Fails if a Python that is named is not there, or if a test fails on any.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.pythons.interpreters import Interpreter, MissingPythonError, found, named, promised
from tests.pythons.selection import optional_names, select
from tests.pythons.wheel import build_wheel

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".pythons"
EXTRAS = "image,deflate,cli"
NOT_HERE = "not (spark or tf or server or slow)"

_MISSING = "import importlib.util, json, sys; names = json.load(sys.stdin); \
print(json.dumps([name for name in names if importlib.util.find_spec(name) is None]))"
_WHERE = "import petastore, pathlib; print(pathlib.Path(petastore.__file__).parent)"


class FailedError(Exception):
    """Something went wrong on one Python; the message is what was printed."""


def main(arguments: Sequence[str]) -> int:
    """Test on the Pythons that are named, or on all that are promised and found."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description="The core's tests on other Pythons.")
    parser.add_argument("pythons", nargs="*", help="versions, commands or paths; none means all that are found")
    parser.add_argument("--only", action="append", type=Path, help="a folder or file of tests, relative to the clone")
    asked = parser.parse_args(arguments)
    try:
        pythons = named(asked.pythons) if asked.pythons else _found()
    except MissingPythonError as problem:
        print(f"pythons: {problem}", file=sys.stderr)
        return 2
    shutil.rmtree(KEPT / "wheel", ignore_errors=True)
    wheel = build_wheel(ROOT, KEPT / "wheel")
    print(f"pythons: {wheel.name}, {wheel.stat().st_size:,} bytes", flush=True)
    _copy_tests(KEPT / "tree")
    failed = [python for python in pythons if not _passes(python, wheel, asked.only or [Path()])]
    if failed:
        print(f"pythons: failed on {', '.join(python.minor for python in failed)}", file=sys.stderr)
        return 1
    print(f"pythons: all is well on {', '.join(python.minor for python in pythons)}")
    return 0


def _found() -> list[Interpreter]:
    there = found(promised((ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    missing = [minor for minor, python in there.items() if python is None]
    if missing:
        print(f"pythons: not tested, for it is not on this machine: {', '.join(missing)}")
    return [python for python in there.values() if python is not None]


def _copy_tests(folder: Path) -> None:
    """What tests read of the repository, and no petastore: that is to come from the wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("tests", "examples", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _passes(python: Interpreter, wheel: Path, only: Sequence[Path]) -> bool:
    print(f"pythons: {python}", flush=True)
    began = time.monotonic()
    try:
        program = _environment(python, wheel)
        absent = json.loads(_run([program, "-c", _MISSING], said=json.dumps(sorted(optional_names(ROOT)))))
        selection = select(ROOT, absent)
        files = [file for file in selection.run if any(file.is_relative_to(place) for place in only)]
        summary = _test(program, files)
    except FailedError as problem:
        print(f"{problem}\npythons: {python.minor} failed", file=sys.stderr, flush=True)
        return False
    others = ", ".join(f"{name} ({count})" for name, count in selection.left_out.items())
    print(f"  {len(files):,} files: {summary}; {time.monotonic() - began:,.0f} s with what is installed")
    print(f"  left out are files that need {others}", flush=True)
    return True


def _environment(python: Interpreter, wheel: Path) -> Path:
    """The Python of an environment that has the wheel and what its tests need."""
    home = KEPT / python.minor
    program = home / "bin" / "python"
    if not program.exists() or _run([program, "-V"]).split()[-1] != ".".join(map(str, python.version)):
        # Without pip, which not every Python brings: the one of this environment installs into that one.
        _run([python.path, "-m", "venv", "--clear", "--without-pip", home])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(program), "install", "--quiet"]
    pip += ["--constraint", str(ROOT / "constraints.txt")]
    _run([*pip, f"{wheel}[{EXTRAS}]", "--group", f"{ROOT / 'pyproject.toml'}:core-test"])
    _run([*pip, "--no-deps", "--force-reinstall", str(wheel)])  # its version may be that of the wheel before
    return program


def _test(program: Path, selected: Sequence[Path]) -> str:
    """Run tests, and the examples of installed modules; answers pytest's last line."""
    tree = KEPT / "tree"
    package = Path(_run([program, "-c", _WHERE], folder=tree).strip())
    if not package.is_relative_to(program.parents[1]):
        raise FailedError(f"petastore is imported from {package}, not from the wheel")
    files = [path if path.parts[0] == "tests" else package.parent / path for path in selected]
    workers = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
    pytest = [str(program), "-m", "pytest", "-q", "--no-header", "-m", NOT_HERE, *workers]
    said = _run([*pytest, *map(str, files)], folder=tree)
    return re.sub(r"^=+ | =+$", "", said.strip().splitlines()[-1])


def _run(command: Sequence[str | Path], folder: Path = ROOT, said: str | None = None) -> str:
    """What a command prints; `PYTHONPATH` would lead it back to the tree."""
    fixtures = ROOT.parent / "shared" / "fixtures" / "parquet-testing"
    environment = {"PETASTORE_PARQUET_TESTING": str(fixtures), **os.environ}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        input=said or "",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FailedError(done.stdout)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
