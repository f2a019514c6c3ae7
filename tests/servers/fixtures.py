"""Servers for tests, as fixtures: named by a `conftest.py` that imports them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.child import child_server
from tests.servers.fault_proxy import FaultProxy

__all__ = ["MOTO_KEYS", "Served", "moto", "proxy", "served"]

MOTO_KEYS = {"key": "AKIAEXAMPLE", "secret": "hush-hush-hush"}


class Served(NamedTuple):
    """A folder whose files a server in another process gives out."""

    root: Path
    port: int


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A folder behind a server of ranges, which is a bucket of S3 to who asks for it as one."""
    root = tmp_path_factory.mktemp("served")
    with child_server("tests.servers.range_server", str(root)) as port:
        yield Served(root, port)


@pytest.fixture
def proxy(served: Served) -> Iterator[FaultProxy]:
    """A proxy before that server, which makes no faults yet."""
    with FaultProxy(served.port) as standing:
        yield standing


@pytest.fixture(scope="session")
def moto() -> Iterator[int]:
    """The port of moto's S3."""
    with child_server("tests.servers.moto_server") as port:
        yield port
