"""Build Horovod against the torch and the TensorFlow of this Python: `python neighbours/horovod/build_wheel.py`.

Prints only the path of the wheel on standard output. The wheel is cached in the user's cache folder, under the versions
that it was built against; an existing wheel is reused. A build takes two to five minutes on two CPUs, and needs a C++
compiler and CMake.

Horovod's last release is of 2023. It is built from the unchanged source on PyPI. `WRAPPER` passes the compiler flags
that current versions of torch and TensorFlow need.
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

# The last of contradicting flags wins. Horovod's CMake files request C++14, but torch's headers need C++17. They
# request -O3 with debug symbols; -O1 without them takes 61 instead of 72 s of CPU for six of the files. The one file
# about XLA's operations on GPUs does not compile against current TensorFlow; without the version it is empty.
WRAPPER = """#!/bin/sh
for argument; do
    case "$argument" in *xla_mpi_ops.cc) set -- "$@" -UTENSORFLOW_VERSION ;; esac
done
exec {compiler} "$@" -std=c++17 -g0 -O1
"""


def main() -> int:
    """Print the path of the wheel; build it if it does not exist."""
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
    """Return a name with all versions that the compiled code depends on."""
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
    """Build in a temporary folder, which is renamed when the wheel is complete."""
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
        except OSError:  # a concurrent build was faster
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
        "HOROVOD_WITHOUT_MPI": "1",  # ranks always communicate through Gloo
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",  # CMake 4 rejects the 2.8 of Horovod's files
    }


if __name__ == "__main__":
    sys.exit(main())
