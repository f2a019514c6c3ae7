"""Tests of converting directory URLs between Spark and Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore.spark.settings import driver_url, spark_url
from petastore.storage.files.location import open_location


@pytest.mark.parametrize(
    ("given", "opened"),
    [
        ("dbfs:/a/b", "file:/dbfs/a/b"),
        ("dbfs:///a/b", "file:/dbfs/a/b"),
        ("dbfs://workspace/a", "dbfs://workspace/a"),
        ("file:///dbfs/a", "file:///dbfs/a"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("/dbfs:/a", "/dbfs:/a"),
    ],
)
def test_databricks_urls_map_to_mounted_paths(given: str, opened: str) -> None:
    assert driver_url(given) == opened


def test_spark_url_of_a_local_path_has_a_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark_url("cache", open_location("cache")) == f"file://{tmp_path}/cache"
    assert spark_url("file:/dbfs/a", open_location("file:/dbfs/a")) == "file:/dbfs/a"
    assert spark_url("memory://a", open_location("memory://a")) == "memory://a"
