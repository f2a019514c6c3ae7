"""Tests of the default cache directory and its default size limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from petastore.cache.folder import LEAST_LIMIT, cache_location, limit_of_free_disk, user_cache_directory


def test_default_cache_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path))
    assert user_cache_directory() == cache_location(None) == tmp_path
    monkeypatch.delenv("PETASTORE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert user_cache_directory() == tmp_path / "xdg" / "petastore"


def test_default_limit_is_a_quarter_of_the_free_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for free, limit in ((4_000_000, 1_000_000), (10, LEAST_LIMIT)):
        monkeypatch.setattr("shutil.disk_usage", lambda _, free=free: type("Usage", (), {"free": free}))
        assert limit_of_free_disk(tmp_path) == limit
