"""Fuzz some targets, or all: `python -m tests.fuzz.run SECONDS [TARGET …]`; `make fuzz` installs atheris for it.

Each target runs in its own process for its share of the seconds. It stops at a crash, a hang of ten seconds, an
exception that is not a PetastoreError, or 512 MB of memory growth. The input is then stored in `.bench/fuzz`.
"""

from __future__ import annotations

import importlib
import resource
import subprocess
import sys
import warnings
from pathlib import Path

_FOLDER = Path(".bench/fuzz").absolute()
_HUNG_S, _MOST_MB = 10, 512


def _fuzz(name: str, seconds: int) -> None:
    atheris = importlib.import_module("atheris")  # installed by `make fuzz` only
    with atheris.instrument_imports(include=["petastore"]):
        from tests.fuzz.targets import TARGETS, outcome
    warnings.simplefilter("ignore")
    target, corpus = TARGETS[name](), _FOLDER / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
        outcome(target, seed)
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    options = {
        "max_total_time": seconds,
        "timeout": _HUNG_S,
        "rss_limit_mb": taken + _MOST_MB,
        "artifact_prefix": f"{_FOLDER}/{name}-",
        "max_len": max(4096, *(2 * len(seed) for seed in target.seeds)),
        "close_fd_mask": 1,
        "print_final_stats": 1,
    }
    arguments = [f"-{option}={value}" for option, value in options.items()]
    atheris.Setup([sys.argv[0], *arguments, str(corpus)], lambda data: outcome(target, data) and None)
    atheris.Fuzz()


def main(arguments: list[str]) -> int:
    """Fuzz the targets, and return the number of targets that failed."""
    from tests.fuzz.targets import TARGETS

    names = arguments[1:] or list(TARGETS)
    seconds = max(1, int(arguments[0]) // len(names))
    found = 0
    for name in names:
        command = [sys.executable, "-m", "tests.fuzz.run", "--one", name, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
        inputs = next(
            (line.split()[-1] for line in done.stderr.splitlines() if "number_of_executed_units" in line), "0"
        )
        print(f"fuzz: {name}: {inputs} inputs in {seconds} s{'' if done.returncode == 0 else ', FAILED'}", flush=True)
        if done.returncode:
            found += 1
            print(done.stderr[-3000:], flush=True)
    return found


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        _fuzz(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main(sys.argv[1:]))
