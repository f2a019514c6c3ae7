"""Tests of `with_environment`: PETASTORE_ variables override the arguments of a reader."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.adapters.torch import ReaderDataset
from petastore.distributed import Shard, with_environment
from petastore.errors import InvalidArgumentError
from tests.distributed.launched import ROWS, VARIABLES, environment_of
from tests.pace import LONG

PREFIX = "PETASTORE_"


@pytest.fixture(autouse=True)
def _nothing_of_petastore_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(PREFIX) and name != "PETASTORE_CACHE":
            monkeypatch.delenv(name)


def seen_by(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """Return the arguments that a reader would get."""

    def reads(
        dataset_url: Any,
        cur_shard: Any = None,
        shard_count: Any = None,
        cache_type: Any = "null",
        cache_location: Any = None,
        cache_size_limit: Any = None,
        storage_options: Any = None,
        memory_budget: Any = None,
        workers_count: Any = None,
    ) -> dict[str, Any]:
        return dict(locals())

    return {name: value for name, value in with_environment(reads)(*args, **kwargs).items() if value is not None}


def test_with_environment_changes_nothing_without_variables() -> None:
    assert seen_by("here", 1, 2, cache_type=None) == {"dataset_url": "here", "cur_shard": 1, "shard_count": 2}


@pytest.mark.parametrize(
    ("variable", "text", "parameter", "value"),
    [
        ("URL", "s3://bucket/there", "dataset_url", "s3://bucket/there"),
        ("CUR_SHARD", "1", "cur_shard", 1),
        ("CUR_SHARD", "auto", "cur_shard", "auto"),
        ("SHARD_COUNT", "4", "shard_count", 4),
        ("STORAGE_OPTIONS", '{"key": "K"}', "storage_options", {"key": "K"}),
        ("CACHE_TYPE", "local-disk", "cache_type", "local-disk"),
        ("CACHE_LOCATION", "/scratch", "cache_location", "/scratch"),
        ("CACHE_SIZE_LIMIT", "1000000", "cache_size_limit", 1_000_000),
        ("MEMORY_BUDGET", "2000000", "memory_budget", 2_000_000),
        ("WORKERS_COUNT", "3", "workers_count", 3),
    ],
)
def test_with_environment_overrides_each_argument(
    variable: str, text: str, parameter: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + variable, text)
    assert seen_by("here")[parameter] == value
    assert seen_by("here", 0)[parameter] == value
    if parameter != "dataset_url":
        assert seen_by("here", **{parameter: "other"})[parameter] == value


def test_with_environment_drops_shard_count_when_cur_shard_is_auto(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CUR_SHARD", "auto")
    assert "shard_count" not in seen_by("here", cur_shard=0, shard_count=1)
    monkeypatch.setenv("PETASTORE_SHARD_COUNT", "2")
    with pytest.raises(InvalidArgumentError, match="PETASTORE_SHARD_COUNT must be unset with PETASTORE_CUR_SHARD=auto"):
        seen_by("here")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("URL", ""),
        ("CUR_SHARD", "-1"),
        ("CUR_SHARD", "first"),
        ("SHARD_COUNT", "2.0"),
        ("SHARD_COUNT", "9" * 30),
        ("STORAGE_OPTIONS", "key=SECRET"),
        ("STORAGE_OPTIONS", '["SECRET"]'),
        ("STORAGE_OPTIONS", "[" * 100_000),
        ("CACHE_TYPE", ""),
        ("CACHE_LOCATION", ""),
        ("CACHE_SIZE_LIMIT", "10GB"),
    ],
)
def test_with_environment_raises_without_showing_the_value(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + variable, text)
    with pytest.raises(InvalidArgumentError, match=f"{PREFIX}{variable} must be ") as refused:
        seen_by("here")
    assert "SECRET" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("CURSHARD", "Did you mean PETASTORE_CUR_SHARD"),
        ("DATASET", "The variables are PETASTORE_URL"),
        ("url", "Did you mean PETASTORE_URL"),
    ],
)
def test_with_environment_raises_for_unknown_variables(
    variable: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PREFIX + variable, "1")
    with pytest.raises(InvalidArgumentError, match=said):
        seen_by("here")


def test_with_environment_ignores_the_variable_of_the_cache_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", "/somewhere")
    assert seen_by("here") == {"dataset_url": "here", "cache_type": "null"}


def test_with_environment_raises_for_arguments_not_accepted(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_URL", numbers)
    with pytest.raises(
        InvalidArgumentError,
        match="PETASTORE_URL must be unset, because make_mixed_reader has no parameter 'dataset_url'",
    ):
        with_environment(petastore.make_mixed_reader)([numbers], [1])
    monkeypatch.delenv("PETASTORE_URL")
    monkeypatch.setenv("PETASTORE_MEMORY_BUDGET", "1000000")
    with pytest.raises(
        InvalidArgumentError,
        match="PETASTORE_MEMORY_BUDGET must be unset, because ReaderDataset has no parameter 'memory_budget'",
    ):
        with_environment(ReaderDataset)(numbers)


def test_with_environment_logs_overrides_without_secrets(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PETASTORE_URL", "https://me:SECRET@host/data.parquet?signature=SECRET")
    monkeypatch.setenv("PETASTORE_STORAGE_OPTIONS", json.dumps({"token": "SECRET"}))
    monkeypatch.setenv("PETASTORE_SHARD_COUNT", "2")
    with caplog.at_level(logging.INFO, logger="petastore.distributed"):
        seen_by("here")
    assert len(caplog.messages) == 3
    assert "https://***@host/data.parquet" in caplog.text
    assert "PETASTORE_SHARD_COUNT=2" in caplog.text
    assert "SECRET" not in caplog.text


def test_readers_ignore_variables_unless_wrapped(numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CUR_SHARD", "0")
    monkeypatch.setenv("PETASTORE_SHARD_COUNT", "2")
    with petastore.make_reader(numbers) as reader:
        assert reader.plan.request.shard == Shard(0, 1)
    with with_environment(petastore.make_reader)(numbers) as reader:
        assert reader.plan.request.shard == Shard(0, 2)
    with with_environment(petastore.make_batch_reader)(numbers, cur_shard=0, shard_count=1) as reader:
        assert reader.plan.request.shard == Shard(0, 2)
    assert with_environment(ReaderDataset)(numbers, batch_size=1).plan.request.shard == Shard(0, 2)


PROGRAM = """
import sys
from petastore import make_reader
from petastore.distributed import with_environment

with with_environment(make_reader)("nowhere", cur_shard="auto") as reader:
    print(*(int(row.id) for row in reader))
"""


@pytest.fixture
def halves(tmp_path: Path) -> list[str]:
    """Write two datasets, as if for two hosts, and return their paths."""
    for name, ids in (("a", range(ROWS // 2)), ("b", range(ROWS // 2, ROWS))):
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": list(ids)}), tmp_path / name / "part.parquet")
    return [str(tmp_path / "a"), str(tmp_path / "b")]


def test_with_environment_can_give_each_host_its_own_dataset(halves: list[str]) -> None:
    """Each of two hosts has its own data, which its two ranks share."""
    plain = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    seen: list[int] = []
    for host, url in enumerate(halves):
        for rank in range(2):
            here = {"PETASTORE_URL": url, "PETASTORE_CUR_SHARD": str(rank), "PETASTORE_SHARD_COUNT": "2"}
            said = subprocess.run(
                [sys.executable, "-c", PROGRAM],
                env=plain | environment_of("torchrun", 2 * host + rank, 4) | here,
                capture_output=True,
                text=True,
                check=True,
                timeout=LONG,
            )
            seen += map(int, said.stdout.split())
    assert sorted(seen) == list(range(ROWS))
