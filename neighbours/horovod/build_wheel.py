"""Build Horovod against the torch and the TensorFlow of this Python: `python neighbours/horovod/build_wheel.py`.

Prints the path of the wheel, and nothing else, on standard output. The wheel is kept in the user's cache folder, under
the versions that it was built against; where it is there already, nothing is built. A build takes two to five minutes
on two processors, and needs a C++ compiler and CMake.

Horovod's last release is of 2023. It is built from its source as it lies on PyPI, none of it changed: what today's
torch and TensorFlow need is said to the compiler instead, by `WRAPPER`.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

HOROVOD = "0.28.1"
NEEDED_TO_BUILD = ("torch", "setuptools", "wheel", "packaging", "cloudpickle", "psutil", "pyyaml", "cffi")

# The last of contradicting flags wins. Horovod's CMake files ask for C++14, torch's headers need C++17. They ask for
# -O3 with debug symbols; -O1 without takes 61 instead of 72 s of CPU for six of the files. The one file about XLA's
# operations on GPUs does not compile against today's TensorFlow; without the version it is empty.
WRAPPER = """#!/bin/sh
for argument; do
    case "$argument" in *xla_mpi_ops.cc) set -- "$@" -UTENSORFLOW_VERSION ;; esac
done
exec {compiler} "$@" -std=c++17 -g0 -O1
"""


def main() -> int:
    """Print where the wheel is; build it where it is not."""
    missing = [name for name in NEEDED_TO_BUILD if _version(name) is None]
    if missing:
        print(
            f"horovod: this Python ({sys.executable}) lacks {', '.join(missing)}; install them first", file=sys.stderr
        )
        return 1
    folder = _cache_folder() / _name_of_build()
    if not folder.is_dir():
        _build(folder)
    (wheel,) = folder.glob("*.whl")
    print(wheel)
    return 0


def _cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "petastore" / "wheels"


def _name_of_build() -> str:
    """All that the compiled code depends on."""
    tensorflow = _tensorflow()
    parts = [
        f"horovod-{HOROVOD}",
        f"torch-{_version('torch')}",
        f"tensorflow-{tensorflow}" if tensorflow else "no-tensorflow",
        "gloo",
        f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}",
    ]
    return "_".join(parts)


def _tensorflow() -> str | None:
    return _version("tensorflow-cpu") or _version("tensorflow")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _build(folder: Path) -> None:
    """Build into a folder beside it, which takes its name when the wheel is whole."""
    cmake, compiler = shutil.which("cmake"), os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if cmake is None or compiler is None:
        sys.exit("horovod: building it needs CMake and a C++ compiler on PATH (Debian: apt install cmake g++)")
    print(f"horovod: building {folder.name} (minutes, once)", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        wrapper = Path(scratch) / "c++"
        wrapper.write_text(WRAPPER.format(compiler=compiler), encoding="utf-8")
        wrapper.chmod(0o755)
        wheels = Path(scratch) / "wheels"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        command += ["--no-build-isolation", "--no-binary", "horovod", "--no-cache-dir", "--wheel-dir", str(wheels)]
        subprocess.run(
            [*command, f"horovod=={HOROVOD}"],
            env=os.environ | _settings(str(wrapper)),
            stdout=sys.stderr,
            check=True,
        )
        try:
            wheels.rename(folder)
        except OSError:  # another build was faster
            if not folder.is_dir():
                raise


def _settings(compiler: str) -> dict[str, str]:
    return {
        "CXX": compiler,
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_CPU_OPERATIONS": "GLOO",
        f"HOROVOD_{'WITH' if _tensorflow() else 'WITHOUT'}_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MPI": "1",  # ranks talk through Gloo, whatever the machine has besides
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 refuses the 2.8 that Horovod's files ask for
    }


if __name__ == "__main__":
    sys.exit(main())
