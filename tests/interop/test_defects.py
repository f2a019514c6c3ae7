"""Tests of known Petastorm defects: each check passes with petastore imported as petastorm."""

from __future__ import annotations

import inspect
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from petastore.cache.entries import Entries
from petastore.errors import RetiredWarning
from petastore.interop import petastorm as switch
from tests.interop.defects import caches
from tests.interop.defects.checks import CHECKS
from tests.interop.defects.data import numbers
from tests.servers.fixtures import Served

OF_CACHES = [name for name, check in CHECKS.items() if inspect.getmodule(check) is caches]


@pytest.fixture
def _switched() -> Iterator[None]:
    switch.install()
    yield
    switch.uninstall()


@pytest.mark.usefixtures("_switched")
@pytest.mark.parametrize("name", CHECKS)
def test_known_petastorm_defect_does_not_occur(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetiredWarning)
        CHECKS[name](tmp_path)


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.usefixtures("_switched")
@pytest.mark.parametrize("name", OF_CACHES)
def test_known_petastorm_cache_defect_does_not_occur_for_remote_files(
    name: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local files are not cached, so these checks need the same rows from a web server."""
    bucket, asked = served.root / uuid.uuid4().hex, list[int]()
    ask = Entries.of

    def served_numbers(_: Path, rows: int) -> str:
        numbers(bucket, rows)
        return f"http://127.0.0.1:{served.port}/{bucket.name}/data.parquet"

    def counted(entries: Entries, keys: Any, *others: Any) -> Any:
        asked.append(len(keys))
        return ask(entries, keys, *others)

    monkeypatch.setattr(caches, "numbers", served_numbers)
    monkeypatch.setattr(Entries, "of", counted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetiredWarning)
        CHECKS[name](tmp_path)
    assert sum(asked) >= 2
