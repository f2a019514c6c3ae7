"""Run the core's tests on each installed Python, with the built wheel: `python -m tests.pythons [PYTHON ...]`.

For each Python, the wheel is installed into a virtual environment, with small extras and test packages at the versions
of `constraints.txt`. Tests run in a folder without `petastore`. Tests that need other packages are skipped, with the
name of the package. All files are kept in `.pythons`. It fails if a named Python is missing, or a test fails.
"""

from __future__ import annotations

import argparse
import collections
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from tests.pythons.interpreters import Interpreter, MissingPythonError, found, named, promised
from tests.pythons.wheel import build_wheel

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / ".pythons"
EXTRAS = "image,deflate,cli,plot,view"
NOT_HERE = "not (spark or tf or server or slow)"

# Tests of the repository, its documentation and its tools, which do not depend on the Python version.
OTHERS = (
    *("benchmarks", "examples", "pythons", "spark", "readers/test_one_reader.py"),
    *("test_conftest.py", "test_docs.py", "test_layout.py", "test_repository.py", "test_site.py", "test_typing.py"),
    *("test_wheel.py", "testing/test_page.py"),
)

# Modules that import a framework which EXTRAS do not include.
NOT_INSTALLED = (
    *(f"adapters/{name}" for name in ("horovod", "jax", "keras", "tensorflow", "torch")),
    *("monitoring/opentelemetry.py", "monitoring/prometheus.py", "spark"),
)

_WHERE = "import petastore, pathlib; print(pathlib.Path(petastore.__file__).parent)"


class FailedError(Exception):
    """A command failed on one Python; the message is its output."""


def main(arguments: Sequence[str]) -> int:
    """Test on the named Pythons, or on all supported ones that are installed."""
    parser = argparse.ArgumentParser(prog="python -m tests.pythons", description="The core's tests on other Pythons.")
    parser.add_argument("pythons", nargs="*", help="versions, commands or paths; none means all that are found")
    parser.add_argument("--only", action="append", help="a folder or file of tests, relative to the clone")
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
    failed = [python for python in pythons if not (_passes_alone(python, wheel) and _passes(python, wheel, asked.only))]
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
    """Copy the files that tests read, without petastore, which must come from the wheel."""
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("tests", "examples", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)


def _passes(python: Interpreter, wheel: Path, only: Sequence[str] | None) -> bool:
    print(f"pythons: {python}", flush=True)
    began = time.monotonic()
    try:
        program = _environment(python, wheel)
        said = _test(program, only)
    except FailedError as problem:
        print(f"{problem}\npythons: {python.minor} failed", file=sys.stderr, flush=True)
        return False
    needed: collections.Counter[str] = collections.Counter()
    for count, name in re.findall(r"^SKIPPED \[(\d+)\] .*: needs (\w+)$", said, re.MULTILINE):
        needed[name] += int(count)
    print(f"  {said.strip().splitlines()[-1].strip('= ')}; {time.monotonic() - began:,.0f} s with what is installed")
    print(f"  skipped are tests and files that need {', '.join(sorted(needed)) or 'nothing'}", flush=True)
    return True


def _passes_alone(python: Interpreter, wheel: Path) -> bool:
    """Return whether the core works with only its dependencies, at the oldest versions and those of constraints.txt."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = [re.sub(r">=([\d.]+).*", r"==\1", dependency) for dependency in project["dependencies"]]
    for name, wanted in (("oldest", oldest), ("newest", ["--constraint", str(ROOT / "constraints.txt")])):
        try:
            program, pip = _bare_environment(python, KEPT / f"{python.minor}-{name}")
            _run([*pip, *wanted, "--force-reinstall", str(wheel)])
            print(f"  {_run([program, KEPT / 'tree' / 'tests' / 'pythons' / 'core_alone.py']).strip()}", flush=True)
        except FailedError as problem:
            print(f"{problem}\npythons: the core alone failed on {python.minor}", file=sys.stderr, flush=True)
            return False
    return True


def _environment(python: Interpreter, wheel: Path) -> Path:
    """Create an environment with the wheel and test packages, and return its Python."""
    program, pip = _bare_environment(python, KEPT / python.minor)
    pip += ["--constraint", str(ROOT / "constraints.txt")]
    _run([*pip, f"{wheel}[{EXTRAS}]", "--group", f"{ROOT / 'pyproject.toml'}:core-test"])
    _run([*pip, "--no-deps", "--force-reinstall", str(wheel)])  # the previous wheel may have the same version
    return program


def _bare_environment(python: Interpreter, home: Path) -> tuple[Path, list[str]]:
    """Create an environment without packages; return its Python and the command that installs into it."""
    program = home / "bin" / "python"
    if not program.exists() or _run([program, "-V"]).split()[-1] != ".".join(map(str, python.version)):
        # Not every Python includes pip, so the pip of this environment installs into the new one.
        _run([python.path, "-m", "venv", "--clear", "--without-pip", home])
    return program, [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(program), "install", "--quiet")
    ]


def _test(program: Path, only: Sequence[str] | None) -> str:
    """Run the tests, and the doctests of the installed modules; return pytest's output."""
    tree = KEPT / "tree"
    package = Path(_run([program, "-c", _WHERE], folder=tree).strip())
    pytest = [str(program), "-m", "pytest", "-q", "--no-header", "-rs", "-m", NOT_HERE, "-k", "not torch"]
    # Otherwise pytest would use the settings of the clone, which put the clone's petastore on the path.
    pytest += ["-c", "pyproject.toml", "--rootdir", str(tree), "-p", "tests.pythons.installed"]
    # Full assertion messages, because the plugin reads the missing package from them.
    pytest += ["-p", "tests.pythons.missing", "-o", "verbosity_assertions=2"]
    pytest += ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]
    pytest += [f"--ignore=tests/{name}" for name in OTHERS] + [f"--ignore={package / name}" for name in NOT_INSTALLED]
    return _run([*pytest, *(only or ["tests", str(package)])], folder=tree)


def _run(command: Sequence[str | Path], folder: Path = ROOT) -> str:
    """Return the output of a command, run without `PYTHONPATH`, which could name the clone."""
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
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
