"""Tests of `petastore cache info`, `clear` and `prune`: contents and freed bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from petastore.cache import DiskCache
from petastore.cli.commands import app


def run(*arguments: Any) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["cache", *map(str, arguments)], env={"COLUMNS": "120"})
    return found.exit_code, found.stdout if found.exit_code == 0 else found.stderr


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    with DiskCache(tmp_path / "cache", limit=1 << 24) as cache, cache.entry("key", lambda: bytes(5000)):
        pass
    return tmp_path / "cache"


def test_cache_info_prints_contents_and_a_summary_line(cache: Path) -> None:
    code, text = run("info", "--cache-dir", cache)
    lines = text.splitlines()
    assert code == 0
    assert lines[1].split("  ", 1)[1].strip() == "1, 8.2 kB (8,192 bytes)"
    assert lines[-1].startswith("1 entry, ")
    assert "16.8 MB" in lines[-1]


def test_cache_info_prints_json(cache: Path) -> None:
    code, text = run("info", "--cache-dir", cache, "--json")
    found = json.loads(text)
    assert (code, found["entries"], found["entry_bytes"], found["limit"]) == (0, 1, 8192, 1 << 24)
    assert found["location"].startswith(str(cache))


def test_cache_clear_and_prune_print_the_freed_bytes(cache: Path) -> None:
    (cache / "petastore-cache-1" / "writing" / ("0" * 32)).write_bytes(bytes(10_000))
    pruned = json.loads(run("prune", "--cache-dir", cache, "--json")[1])
    assert pruned["entries"] == 1
    assert not list((cache / "petastore-cache-1" / "writing").iterdir())
    assert run("clear", "--cache-dir", cache) == (0, "8.2 kB freed, 0 entries of 0 bytes are left\n")


@pytest.mark.parametrize("verb", ["info", "prune", "clear"])
def test_cache_commands_create_no_cache(verb: str, tmp_path: Path) -> None:
    code, text = run(verb, "--cache-dir", tmp_path / "none")
    assert code == 2
    assert "--cache-dir must be the directory of an existing cache, got" in text
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("verb", ["info", "prune", "clear"])
def test_cache_commands_say_that_the_default_cache_does_not_exist(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PETASTORE_CACHE", str(tmp_path / "none"))
    code, text = run(verb)
    assert code == 2
    assert f"the default cache {tmp_path / 'none'} does not exist yet. Readers with" in text


def test_cache_prune_evicts_by_age_and_size(cache: Path) -> None:
    with DiskCache(cache) as kept:
        for number in range(3):
            with kept.entry(f"more {number}", lambda: bytes(5000)):
                pass
    for options, left in ((["--older-than", 1], 4), (["--max-size", 20_000], 2), (["--older-than", 0], 0)):
        assert json.loads(run("prune", "--cache-dir", cache, *options, "--json")[1])["entries"] == left
    for option in ("--max-size", "--older-than"):
        code, text = run("prune", "--cache-dir", cache, f"{option}=-1")
        assert code == 2
        assert option in text
