"""Tests of `petastore cache warm`: it prefetches exactly the chunks that a reader will request."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from petastore.cli.cache import warm_cache
from tests.cli.test_cache import run
from tests.servers.fault_proxy import FaultProxy, Faults
from tests.servers.fixtures import Served


@pytest.fixture
def url(served: Served, proxy: FaultProxy) -> str:
    folder = served.root / uuid.uuid4().hex
    folder.mkdir()
    ids = np.arange(8000)
    pq.write_table(pa.table({"id": ids, "half": ids / 2}), folder / "part.parquet", row_group_size=1000)
    return f"{proxy.url}/{folder.name}/part.parquet"


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_reader_requests_no_chunks_after_cache_warm(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    options = ["--cache-dir", tmp_path, "--cache-size-limit", 1 << 24, "--json"]
    code, text = run("warm", url, "--columns", "id", "--shard", "1/2", *options)
    found = json.loads(text)
    assert (code, found["row_groups"], found["entries_fetched"], found["entries_there"]) == (0, 4, 4, 0)
    assert found["bytes_fetched"] >= 4 * 1000
    asked: dict[str, Any] = {"schema_fields": ["id"], "cache_type": "local-disk", "cache_location": tmp_path}
    with petastore.make_batch_reader(url, cur_shard=1, shard_count=2, **asked) as reader:
        assert sum(batch.num_rows for batch in reader.iter_batches(100)) == 4000
        assert reader.diagnostics["cache_hits"] == 4
        assert reader.diagnostics["cache_misses"] == 0
    code, text = run("warm", url, "--columns", "id", "--shard", "1/2", "--cache-dir", tmp_path)
    assert code == 0
    assert "0 fetched, 4 there already" in text
    assert text.splitlines()[-1].startswith("4 of 4 row groups in the cache, ")


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_cache_warm_skips_chunks_that_do_not_fit(url: str, proxy: FaultProxy, tmp_path: Path) -> None:
    proxy.begin(Faults())
    code, text = run("warm", url, "--cache-dir", tmp_path, "--cache-size-limit", 1 << 17, "--json")
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
        (["--reshuffle-each-epoch", "--seed", "5"], {"reshuffle_each_epoch": True, "seed": 5}),
        (
            ["--shuffle-rows", "--seed", "5", "--interleave", "4", "--shuffle-block-rows", "100"],
            {"shuffle_rows": True, "seed": 5, "interleave": 4, "shuffle_block_rows": 100},
        ),
        (["--shuffle-rows", "--shuffle-buffer-bytes", "20kB"], {"shuffle_rows": True, "shuffle_buffer_bytes": 20000}),
    ],
    ids=str,
)
def test_cache_warm_fetches_the_chunks_of_a_reader(
    options: list[str], asked: dict[str, Any], url: str, proxy: FaultProxy, tmp_path: Path
) -> None:
    code, text = run(
        "warm", url, "--shard", "1/2", *options, "--cache-dir", tmp_path, "--cache-size-limit", 1 << 24, "--json"
    )
    assert code == 0, text
    cache: dict[str, Any] = {"cache_type": "local-disk", "cache_location": tmp_path}
    with petastore.make_batch_reader(url, cur_shard=1, shard_count=2, num_epochs=1, **cache, **asked) as reader:
        assert sum(batch.num_rows for batch in reader.iter_batches(100)) > 0
        assert reader.diagnostics["cache_misses"] == 0
        assert reader.diagnostics["cache_hits"] >= json.loads(text)["row_groups"] > 0


@pytest.mark.server
@pytest.mark.leaves_running("fsspec keeps its web session")
def test_cache_warm_progress_counts_row_groups(url: str, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    dataset = petastore.open_dataset(url).with_cache(tmp_path, limit=1 << 24)
    warm_cache(dataset, dataset.plan(), progress=lambda done, of: told.append((done, of)))
    assert told == [(done, 8) for done in range(9)]


@pytest.mark.parametrize("options", [["--filters", "[id"], ["--cache-size-limit", "much"]], ids=str)
def test_cache_warm_names_invalid_options(options: list[str], tmp_path: Path) -> None:
    code, text = run("warm", tmp_path, *options)
    assert code == 2
    assert options[0].removeprefix("--").replace("-", "_") in text.replace("-", "_")


@pytest.mark.parametrize("shard", ["1", "a/2", "-1/2", "2/2"])
def test_cache_warm_parses_the_shard_option(shard: str, tmp_path: Path) -> None:
    code, text = run("warm", tmp_path, "--shard", shard)
    assert code == 2
    assert "shard" in text


def test_cache_warm_skips_local_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "local.parquet")
    code, text = run("warm", tmp_path / "local.parquet", "--cache-dir", tmp_path / "cache")
    assert code == 2
    assert "must be remote, with files that petastore reads by byte ranges" in text
