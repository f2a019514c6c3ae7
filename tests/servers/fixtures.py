"""Pytest plugin: servers that all test files of one pytest worker share.

`tests/conftest.py` loads it, so no test file imports a fixture: pytest starts a session fixture once for each module
that imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.servers.child import child_server
from tests.servers.fault_proxy import FaultProxy

__all__ = ["MOTO_KEYS", "Served", "moto", "proxy", "s3_served", "served"]

MOTO_KEYS = {"key": "AKIAEXAMPLE", "secret": "hush-hush-hush"}


class Served(NamedTuple):
    """A folder that a server in another process serves."""

    root: Path
    port: int


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a folder served over HTTP with byte ranges; S3 clients that only read can use it as a bucket."""
    root = tmp_path_factory.mktemp("served")
    with child_server("tests.servers.range_server", str(root)) as port:
        yield Served(root, port)


@pytest.fixture(scope="session")
def s3_served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Yield a folder served as S3, with subfolders as buckets. It starts faster than moto and checks no signature."""
    root = tmp_path_factory.mktemp("s3")
    with child_server("tests.servers.s3_server", str(root)) as port:
        yield Served(root, port)


@pytest.fixture
def proxy(served: Served) -> Iterator[FaultProxy]:
    """Yield a proxy in front of `served` that injects no faults yet."""
    with FaultProxy(served.port) as standing:
        yield standing


@pytest.fixture(scope="session")
def moto() -> Iterator[int]:
    """Yield the port of a moto server."""
    with child_server("tests.servers.moto_server") as port:
        yield port
