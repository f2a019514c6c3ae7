"""Engines that start ranks on Spark's executors: TensorFlowOnSpark, `horovod.spark.run`. Each row is read once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from neighbours.conftest import UNEVEN, Run


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("way", "names"), [("tensorflow-on-spark", "chief-0 worker-0"), ("horovod", "rank-0 rank-1")])
def test_each_row_is_read_by_one_of_two_executors(
    way: str, names: str, numbered: Callable[..., str], tmp_path: Path, run: Run
) -> None:
    folder = tmp_path / "noted"
    folder.mkdir()
    run(["python", "-m", "neighbours.spark.clusters", way, numbered(), folder], seconds=200)
    found = {path.stem: json.loads(path.read_text()) for path in folder.iterdir()}
    assert sorted(found) == names.split()
    assert [found[name]["shard"] for name in names.split()] == [[0, 2], [1, 2]]
    assert sorted(number for one in found.values() for number in one["ids"]) == list(range(sum(UNEVEN)))
