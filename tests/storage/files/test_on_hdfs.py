"""Tests of HDFS URLs: a name node, a nameservice with one name node down, the default filesystem, and viewfs.

A file that is rewritten while it is read raises.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pace import patience
from tests.servers.child import child_server
from tests.servers.hadoop_server import client_environment, write_configuration
from tests.servers.install_hadoop import HADOOP, is_installed
from tests.storage.files.on_hdfs import ROWS

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Yield the port of a name node."""
    if not is_installed():
        pytest.fail(f"there is no Hadoop at {HADOOP}: `make test-all` installs it", pytrace=False)
    with child_server("tests.servers.hadoop_server", str(tmp_path_factory.mktemp("hdfs"))) as port:
        yield port


def test_hdfs_dataset_is_read_by_every_url_form(hdfs: int, tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, but not listening
        gone = bound.getsockname()[1]
        configuration = write_configuration(
            tmp_path / "configuration",
            core_site={
                "fs.defaultFS": "hdfs://cluster",
                "fs.viewfs.mounttable.all.link./mine": "hdfs://cluster/data",
            },
            hdfs_site={
                "dfs.nameservices": "cluster",
                "dfs.ha.namenodes.cluster": "one,two",
                "dfs.namenode.rpc-address.cluster.one": f"127.0.0.1:{gone}",
                "dfs.namenode.rpc-address.cluster.two": f"127.0.0.1:{hdfs}",
            },
        )
        found = read_by(
            configuration,
            f"hdfs://127.0.0.1:{hdfs}/data/frames",
            *(urls := [
                f"hdfs://127.0.0.1:{hdfs}/data/frames",
                f"hdfs://somebody@127.0.0.1:{hdfs}/data/frames",
                f"hdfs://127.0.0.1:{hdfs}/data/fr*",
                "hdfs://cluster/data/frames",
                "hdfs:///data/frames",
                "viewfs://all/mine/frames",
            ]),
            f"hdfs://127.0.0.1:{hdfs}/nowhere",
        )  # fmt: skip
    told = str(found.pop("rewritten"))
    assert re.match(
        r"DatasetChangedError: a\.parquet was rewritten .*: it had 8\d\d,\d{3} bytes, written 2\S+ \S+, and has 8", told
    ), told
    for url in urls:
        assert found.pop(url) == list(range(ROWS)), url
    (missing,) = found.values()
    assert str(missing).startswith("DatasetNotFoundError")


def read_by(configuration: Path, written: str, *urls: str) -> dict[str, list[int] | str]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.files.on_hdfs", written, *urls],
        env={**os.environ, **client_environment(configuration)},
        capture_output=True,
        text=True,
        timeout=patience(200),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))
