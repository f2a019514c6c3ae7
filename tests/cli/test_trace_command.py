"""Tests of `petastore trace`: the rows of a step, and a ranking of rows by loss spikes in a log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore import Unischema, UnischemaField, make_reader
from petastore.codecs import CompressedImageCodec
from tests.cli.command import petastore as run

BAD = {5, 77}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    fields = [
        UnischemaField("id", "int64"),
        UnischemaField("label", "str", nullable=True),
        UnischemaField("photo", "uint8", (None, None, 3), CompressedImageCodec("png")),
    ]
    rows = [
        {
            "id": number,
            "label": "bad\x1b[31m" if number in BAD else None if number % 2 else "good",
            "photo": np.full((2, 3, 3), number, "uint8"),
        }
        for number in range(120)
    ]
    path = tmp_path_factory.mktemp("traced") / "birds"
    petastore.write_dataset(path, Unischema("Birds", fields), rows, rows_per_row_group=10, rows_per_file=40)
    return str(path)


def log(folder: Path, url: str) -> Path:
    """Write a loss log of two epochs in batches of 6 rows, with a spike at each bad row, and return its path."""
    with make_reader(url, ["id"], seed=4, shuffle_rows=True, num_epochs=2) as reader:
        hits = [len(BAD & set(batch["id"].tolist())) for batch in reader.iter_batches(6)]
    noise = np.random.default_rng(0).normal(0, 0.02, len(hits))
    lines = [f"{step},{1 + 2 * hit + extra}" for step, (hit, extra) in enumerate(zip(hits, noise, strict=True))]
    (folder / "losses.csv").write_text("\n".join(["step,loss", *lines]), encoding="utf-8")
    return folder / "losses.csv"


@pytest.mark.parametrize("rank", [None, 1])
def test_trace_shows_the_rows_of_a_step(url: str, rank: int | None) -> None:
    asked = ["trace", url, "--batch-size", "4", "--ranks", "2", "--seed", "7", "--shuffle-rows", "--step", "20"]
    found = run(*asked, *(["--rank", str(rank)] if rank is not None else []), "--columns", "id", "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert (facts["step"], facts["epoch"], facts["step_of_epoch"]) == (20, 1, 5)
    given = []
    for number in [0, 1] if rank is None else [rank]:
        with make_reader(
            url, seed=7, shuffle_rows=True, num_epochs=2, cur_shard=number, shard_count=2, provenance=True
        ) as reader:
            batch = list(reader.iter_batches(4))[20]
            names = ("source_file", "source_row_group", "source_row", "id")
            columns = {"rank": [number] * 4, **{name: batch[name].tolist() for name in names}}
            given += [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    assert facts["rows"] == given


def test_trace_prints_a_table_and_the_step(url: str) -> None:
    found = run(
        "trace", url, "-b", "4", "--seed", "7", "--step", "2", "--epoch", "3", "--columns", "label", COLUMNS="130"
    )
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[0].split() == ["row", "source_file", "source_row_group", "source_row", "label"]
    assert "step 2: epoch 3, its step 2; 4 rows in 2 row groups of 2 files, from ('part-" in found.stdout
    assert "\x1b[31m" not in found.stdout


def test_trace_reads_no_data_without_columns(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(petastore.Dataset, "read", None)
    assert run("trace", url, "-b", "4", "--seed", "7", "--step", "2").exit_code == 0


def test_trace_marks_repeated_rows(url: str) -> None:
    found = run("trace", url, "-b", "50", "--seed", "7", "--step", "2", "--last-batch", "pad", "--json")
    valid = [row.get("valid", True) for row in json.loads(found.stdout)["rows"]]
    assert valid == [True] * 20 + [False] * 30


def test_trace_saves_the_images_of_the_step(url: str, tmp_path: Path) -> None:
    found = run("trace", url, "-b", "4", "--seed", "7", "--step", "2", "--images", tmp_path / "images", "--json")
    assert found.exit_code == 0, found.output
    files = [row["photo"]["file"] for row in json.loads(found.stdout)["rows"]]
    assert sorted(files) == sorted(map(str, (tmp_path / "images").iterdir()))
    assert len(files) == 4
    assert "4 images saved" in found.stderr


def test_trace_follows_filters_and_the_order(url: str) -> None:
    asked = ("--filters", '[["id", ">=", 100]]', "--order", '{"shuffle_row_groups": false}')
    found = run("trace", url, "-b", "4", "--seed", "7", "--step", "1", *asked, "--columns", "id", "--json")
    assert [row["id"] for row in json.loads(found.stdout)["rows"]] == [104, 105, 106, 107]


def test_trace_ranks_the_rows_behind_spikes(url: str, tmp_path: Path) -> None:
    asked = (
        "trace",
        url,
        "-b",
        "6",
        "--seed",
        "4",
        "--shuffle-rows",
        "--losses",
        log(tmp_path, url),
        "--label",
        "label",
    )
    found = run(*asked, "--top", "2", "--exclude-out", tmp_path / "exclude.json", "--json")
    assert found.exit_code == 0, found.output
    facts = json.loads(found.stdout)
    assert len(facts["spikes"]) == 4
    assert facts["labels"][0]["item"] == "bad\x1b[31m"
    exclude = json.loads((tmp_path / "exclude.json").read_text(encoding="utf-8"))
    assert exclude == [row["item"] for row in facts["rows"]]
    with make_reader(url, exclude_rows=exclude) as reader:
        assert set(range(120)) - {row.id for row in reader} == BAD
    shown = run(*asked, "--step", "3", COLUMNS="130").stdout
    for line in (
        "step 3: epoch 0",
        "4 spikes",
        "rows in spikes",
        "files in spikes",
        "labels in spikes",
        r"bad\x1b[31m",
    ):
        assert line in shown


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("--seed", "1"), "--step or --losses must be given, got neither"),
        (("--step", "3"), "--seed must be given, got none. Pass the seed of the training reader"),
        (
            ("--step", "3", "--seed", "1", "--order", '{"lanes": 2}'),
            "--order must have only the options shuffle_row_groups",
        ),
        (("--step", "3", "--seed", "1", "--filters", "["), "--filters must be JSON"),
        (("--step", "3", "--seed", "1", "--columns", "none"), "none"),
        (("--losses", "none.csv", "--seed", "1"), "losses must be an existing file or directory"),
    ],
)
def test_invalid_option_prints_one_line(url: str, asked: tuple[str, ...], message: str) -> None:
    found = run("trace", url, "--batch-size", "4", *asked)
    assert found.exit_code == 2
    assert message in found.stderr


def test_unwritable_exclude_file_prints_one_line(url: str, tmp_path: Path) -> None:
    losses = log(tmp_path, url)
    found = run("trace", url, "-b", "6", "--seed", "4", "--losses", losses, "--exclude-out", tmp_path / "no" / "file")
    assert found.exit_code == 2
    assert "--exclude-out must be a writable file" in found.stderr
