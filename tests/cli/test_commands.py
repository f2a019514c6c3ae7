"""Tests of the command line in this process: version, `inspect`, `plan` and errors, as text and as JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField
from petastore.cli.inspect import dataset_facts
from tests.cli.command import petastore as run


@pytest.fixture
def url(tmp_path: Path) -> str:
    schema = Unischema("Wide", [UnischemaField(f"field_{number}", np.int64) for number in range(60)])
    petastore.write_dataset(str(tmp_path / "wide"), schema, [{f"field_{number}": 1 for number in range(60)}])
    return str(tmp_path / "wide")


def test_version_option_prints_the_version() -> None:
    assert run("--version").output == f"petastore {petastore.__version__}\n"


def test_inspect_json_has_the_same_facts(url: str) -> None:
    found = run("inspect", url, "--json")
    facts = json.loads(json.dumps(dataclasses.asdict(dataset_facts(petastore.open_dataset(url)))))
    assert (found.exit_code, json.loads(found.stdout)) == (0, facts)


def test_inspect_lists_every_field_when_piped(url: str) -> None:
    assert all(f"field_{number}" in run("inspect", url).output for number in (0, 59))


def test_missing_dataset_prints_one_line(tmp_path: Path) -> None:
    found = run("inspect", tmp_path / "nowhere")
    assert found.exit_code != 0
    assert found.stderr.count("\n") == 1
    assert "nowhere" in found.stderr


def test_plan_shows_the_steps_of_each_rank(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "x", {"id": range(1000), "noise": range(1000)}, rows_per_row_group=50)
    asked = ("plan", tmp_path / "x", "--ranks", "8", "--batch-size", "32", "--shuffle-rows", "--seed", "7")
    found = run(*asked)
    assert found.exit_code == 0
    assert "8 ranks × 4 batches of 32 rows, 125 rows a rank" in found.output
    assert re.search(r"^last batch +even$", found.output, re.MULTILINE)
    facts = json.loads(run(*asked, "--json", "--columns", "id").stdout)
    assert (facts["ranks"], facts["steps"], facts["seed"], facts["bytes_of"]) == (8, 4, 7, "columns")
    whole = json.loads(run(*asked, "--json").stdout)
    assert 0 < facts["bytes_to_fetch"] < whole["bytes_to_fetch"]
    assert json.loads(run(*asked, "--json", "--last-batch", "drop").stdout)["steps"] == 3


def test_plan_rejects_invalid_options_in_one_line(tmp_path: Path) -> None:
    petastore.write_dataset(tmp_path / "x", {"id": range(10)})
    for wrong in (("--ranks", "11"), ("--rank", "1"), ("--last-batch", "odd"), ("--columns", "no")):
        found = run("plan", tmp_path / "x", "--batch-size", "4", *wrong)
        assert (found.exit_code, found.stderr.count("\n")) == (2, 1), wrong
