"""HDFS on loopback, a name node and a data node: `python -m tests.servers.hadoop_server FOLDER`.

It prints the name node's port once a file can be written, and ends when standard input closes. `make test-all` installs
it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.servers.free_port import serving_until_input_ends
from tests.servers.install_hadoop import HADOOP

__all__ = ["client_environment", "write_configuration"]

_JAVA = HADOOP / "java"
# Hadoop 2.7 accesses Java's Kerberos classes at startup, even if Kerberos is not used.
_OPTIONS = ["--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED", "-Xmx256m"]
_NODE = "org.apache.hadoop.hdfs.server"


def write_configuration(folder: Path, **files: Mapping[str, str]) -> Path:
    """Write a folder with a Hadoop configuration, and return it.

    Args:
        folder: The folder, which is created.
        files: Properties by file name, with `_` for `-`, and without `.xml`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, properties in files.items():
        lines = [f"<property><name>{key}</name><value>{value}</value></property>" for key, value in properties.items()]
        path = folder / f"{name.replace('_', '-')}.xml"
        path.write_text(f"<configuration>{''.join(lines)}</configuration>", encoding="utf-8")
    return folder


def client_environment(configuration: Path) -> dict[str, str]:
    """Return the environment variables for libhdfs, which finds no configuration by itself.

    Args:
        configuration: The folder for `HADOOP_CONF_DIR`.
    """
    jars = sorted(str(path) for path in (HADOOP / "jars").glob("*.jar"))
    return {
        "JAVA_HOME": str(_JAVA),
        "ARROW_LIBHDFS_DIR": str(HADOOP / "lib"),
        "CLASSPATH": os.pathsep.join(jars),
        "LIBHDFS_OPTS": " ".join(_OPTIONS),
        "HADOOP_CONF_DIR": str(configuration),
    }


def _java(folder: Path, *arguments: str) -> list[str]:
    path = os.pathsep.join([str(folder / "configuration"), str(folder / "web"), f"{HADOOP / 'jars'}/*"])
    return [str(_JAVA / "bin" / "java"), *_OPTIONS, "-cp", path, *arguments]


def _prepare(folder: Path, port: int) -> None:
    """Write the configuration of both nodes, and create an empty filesystem."""
    for part in ("web", "name", "data"):  # remains of a start whose port was in use
        shutil.rmtree(folder / part, ignore_errors=True)
    for name in ("hdfs", "datanode"):  # web pages, which are not in the jars
        (folder / "web" / "webapps" / name).mkdir(parents=True)
    anywhere = ("dfs.namenode.http-address", "dfs.datanode.address", "dfs.datanode.ipc.address")
    write_configuration(
        folder / "configuration",
        core_site={"fs.defaultFS": f"hdfs://127.0.0.1:{port}"},
        hdfs_site={
            **dict.fromkeys((*anywhere, "dfs.datanode.http.address"), "127.0.0.1:0"),
            "dfs.webhdfs.enabled": "false",  # it needs a library that is not among the jars
            "dfs.replication": "1",
            "dfs.namenode.name.dir": str(folder / "name"),
            "dfs.datanode.data.dir": str(folder / "data"),
        },
    )
    format_it = _java(folder, f"{_NODE}.namenode.NameNode", "-format", "-nonInteractive")
    subprocess.run(format_it, check=True, capture_output=True)


@contextlib.contextmanager
def _data_node(folder: Path) -> Iterator[None]:
    command = _java(folder, f"{_NODE}.datanode.DataNode")
    null = subprocess.DEVNULL
    with subprocess.Popen(command, stdin=null, stdout=null, stderr=null) as process:
        try:
            report = _java(folder, "org.apache.hadoop.hdfs.tools.DFSAdmin", "-report", "-live")
            while "Live datanodes (1)" not in subprocess.run(report, capture_output=True, text=True, check=True).stdout:
                if process.poll() is not None:
                    raise RuntimeError(f"the data node ended with {process.returncode}")
            yield
        finally:
            process.kill()


def main(folder: Path) -> None:
    """Run the servers until standard input closes."""

    def command(port: int) -> Sequence[str]:
        _prepare(folder, port)
        return _java(folder, f"{_NODE}.namenode.NameNode")

    with serving_until_input_ends(command) as port, _data_node(folder):
        print(port, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            sys.stdin.read()  # waits before the data node ends


if __name__ == "__main__":
    main(Path(sys.argv[1]))
