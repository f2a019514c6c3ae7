"""`petastore cache`: what is there, what is fetched beforehand, and what is freed."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import petastore
from petastore.cache import DiskCache
from petastore.cli.commands import app
from petastore.cli.warm import warm
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served, proxy, served

__all__ = ["proxy", "served"]


def run(*arguments: Any) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["cache", *map(str, arguments)], env={"COLUMNS": "120"})
    return found.exit_code, found.stdout if found.exit_code == 0 else found.stderr


@pytest.fixture
def url(served: Served, proxy: FaultProxy) -> str:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    ids = np.arange(8000)
    pq.write_table(pa.table({"id": ids, "half": ids / 2}), folder / "part.parquet", row_group_size=1000)
    return f"{proxy.url}/{folder.name}/part.parquet"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    with DiskCache(tmp_path / "cache", limit=1 << 24) as cache, cache.entry("key", lambda: bytes(5000)):
        pass
    return tmp_path / "cache"


def test_info_says_what_is_there_and_closes_with_one_line(cache: Path) -> None:
    code, text = run("info", "--location", cache)
    lines = text.splitlines()
    assert code == 0
    assert lines[1].split("  ", 1)[1].strip() == "1, 8.2 kB (8,192 bytes)"
    assert lines[-1].startswith("1 entry, ")
    assert "16.8 MB" in lines[-1]


def test_info_is_json_for_programs(cache: Path) -> None:
    code, text = run("info", "--location", cache, "--json")
    found = json.loads(text)
    assert (code, found["entries"], found["entry_bytes"], found["limit"]) == (0, 1, 8192, 1 << 24)
    assert found["location"].startswith(str(cache))


def test_clear_and_prune_say_what_they_freed(cache: Path) -> None:
    (cache / "petastore-cache-1" / "writing" / ("0" * 32)).write_bytes(bytes(10_000))
    pruned = json.loads(run("prune", "--location", cache, "--json")[1])
    assert pruned["entries"] == 1
    assert not list((cache / "petastore-cache-1" / "writing").iterdir())
    assert run("clear", "--location", cache) == (0, "8.2 kB freed, 0 entries of 0 bytes are left\n")


@pytest.mark.parametrize("verb", ["info", "prune", "clear"])
def test_where_there_is_no_cache_none_is_made(verb: str, tmp_path: Path) -> None:
    code, text = run(verb, "--location", tmp_path / "none")
    assert code == 2
    assert "there is no cache at" in text
    assert not (tmp_path / "none").exists()


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_who_reads_what_was_warmed_makes_no_request_for_chunks(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    options = ["--location", tmp_path, "--limit", 1 << 24, "--json"]
    code, text = run("warm", url, "--columns", "id", "--shard", "1/2", *options)
    found = json.loads(text)
    assert (code, found["row_groups"], found["entries_fetched"], found["entries_there"]) == (0, 4, 4, 0)
    assert found["bytes_fetched"] >= 4 * 1000
    asked: dict[str, Any] = {"schema_fields": ["id"], "cache_type": "local-disk", "cache_location": tmp_path}
    with petastore.make_batch_reader(url, cur_shard=1, shard_count=2, **asked) as reader:
        assert sum(batch.num_rows for batch in reader.batches(100)) == 4000
        assert reader.diagnostics["cache_hits"] == 4
        assert reader.diagnostics["cache_misses"] == 0
    code, text = run("warm", url, "--columns", "id", "--shard", "1/2", "--location", tmp_path)
    assert code == 0
    assert "0 fetched, 4 there already" in text
    assert text.splitlines()[-1].startswith("4 of 4 row groups in the cache, ")


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_what_has_no_room_is_not_fetched(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.begin(Faults())
    code, text = run("warm", url, "--location", tmp_path, "--limit", 1 << 17, "--json")
    found = json.loads(text)
    assert code == 0
    assert 0 < found["row_groups"] < 8 == found["row_groups"] + found["row_groups_without_room"]
    assert found["entries_fetched"] == 2 * found["row_groups"]
    assert found["entries_not_kept"] == 0


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
@pytest.mark.parametrize(
    ("options", "asked"),
    [
        (
            ["--filters", '[["id", ">=", 2500], ["id", "<", 4500]]'],
            {"filters": [("id", ">=", 2500), ("id", "<", 4500)]},
        ),
        (
            ["--filters", '[[["id", "<", 1]], [["id", ">", 7998]]]'],
            {"filters": [[("id", "<", 1)], [("id", ">", 7998)]]},
        ),
        (["--reshuffle", "epoch", "--seed", "5"], {"reshuffle": "epoch", "seed": 5}),
        (
            ["--shuffle-rows", "--seed", "5", "--lanes", "4", "--block-rows", "100"],
            {"shuffle_rows": True, "seed": 5, "lanes": 4, "block_rows": 100},
        ),
        (["--shuffle-rows", "--shuffle-memory", "20000"], {"shuffle_rows": True, "shuffle_memory": 20000}),
    ],
    ids=str,
)
def test_what_is_warmed_is_what_a_reader_of_the_same_options_reads(
    options: list[str], asked: dict[str, Any], url: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    code, text = run("warm", url, "--shard", "1/2", *options, "--location", tmp_path, "--limit", 1 << 24, "--json")
    assert code == 0, text
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path}
    with petastore.make_batch_reader(url, cur_shard=1, shard_count=2, num_epochs=1, **cache, **asked) as reader:
        assert sum(batch.num_rows for batch in reader.batches(100)) > 0
        assert reader.diagnostics["cache_misses"] == 0
        assert reader.diagnostics["cache_hits"] >= json.loads(text)["row_groups"] > 0


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_progress_counts_each_row_group(url: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    dataset = petastore.open_dataset(url).with_cache(tmp_path, limit=1 << 24)
    warm(dataset, dataset.plan(), progress=lambda done, of: told.append((done, of)))
    assert told == [(done, 8) for done in range(9)]


@pytest.mark.parametrize("options", [["--filters", "[id"], ["--reshuffle", "never"]], ids=str)
def test_options_that_cannot_be_are_named(options: list[str], tmp_path: Path) -> None:
    code, text = run("warm", tmp_path, *options)
    assert code == 2
    assert options[0] in text


def test_prune_takes_entries_that_were_not_used_for_long_or_are_too_much(cache: Path) -> None:
    with DiskCache(cache) as kept:
        for number in range(3):
            with kept.entry(f"more {number}", lambda: bytes(5000)):
                pass
    for options, left in ((["--unused", 1], 4), (["--to", 20_000], 2), (["--unused", 0], 0)):
        assert json.loads(run("prune", "--location", cache, *options, "--json")[1])["entries"] == left
    assert run("prune", "--location", cache, "--to=-1")[0] == 2


@pytest.mark.parametrize("shard", ["1", "a/2", "-1/2", "2/2"])
def test_a_shard_is_a_number_of_a_number(shard: str, tmp_path: Path) -> None:
    code, text = run("warm", tmp_path, "--shard", shard)
    assert code == 2
    assert "shard" in text


def test_local_files_are_not_warmed(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "local.parquet")
    code, text = run("warm", tmp_path / "local.parquet", "--location", tmp_path / "cache")
    assert code == 2
    assert "is on the local disk already" in text
