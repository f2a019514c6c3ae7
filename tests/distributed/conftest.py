"""Fixture that removes the environment variables of launchers, so that each test sets its own."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.distributed.launched import ROWS, VARIABLES


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a dataset of rows with ids from 0, in row groups of different sizes, and return its path."""
    folder = tmp_path_factory.mktemp("numbers")
    table = pa.table({"id": range(ROWS)})
    for number, (first, stop) in enumerate([(0, 3), (3, 4), (4, 30), (30, ROWS)]):
        pq.write_table(table.slice(first, stop - first), folder / f"part-{number}.parquet", row_group_size=11)
    return str(folder)
