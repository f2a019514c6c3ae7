"""Tests of `petastore throughput` and `petastore tune`: rates, JSON, progress and errors."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import CompressedImageCodec
from tests.cli.command import petastore
from tests.cli.terminals import on_a_terminal


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    path = tmp_path / "numbers"
    write_dataset(path, Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


BRIEFLY = ("--warmup", "100", "--measure", "500", "--seconds", "0", "--batch-size", "50", "-w", "1")


def test_throughput_ends_with_a_summary_line(dataset: Path) -> None:
    ran = petastore("throughput", dataset, *BRIEFLY)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "measured  500 rows in " in ran.stdout
    assert re.fullmatch(r"[0-9,]+ rows/s, .*/s, [0-9]+ % CPU, .* of memory", ran.stdout.splitlines()[-1])


def test_throughput_json_has_units_in_names(dataset: Path) -> None:
    ran = petastore("throughput", dataset, *BRIEFLY, "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert (found["rows"], found["bytes_per_row"]) == (500, 8)
    assert found["rows_per_second"] == pytest.approx(500 / found["seconds"])
    assert found["bytes_per_second"] == pytest.approx(8 * found["rows_per_second"])
    rates = [found[f"{which}_rows_per_second"] for which in ("slowest", "median", "fastest")]
    assert rates == sorted(rates)
    assert found["first_seconds"] > 0
    assert found["cpu_percent"] > 0
    assert found["peak_memory_bytes"] > 10 * 2**20
    assert len(found) == 11


def test_throughput_shows_progress_on_terminals_only(dataset: Path) -> None:
    code, seen, printed = on_a_terminal("throughput", dataset, *BRIEFLY, "--json", stream="stderr")
    assert code == 0
    shares = [int(share) for share in re.findall(r"([0-9]+)\s*%", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen))]
    assert len(set(shares)) > 5
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert json.loads(printed)["rows"] == 500


def test_throughput_reports_an_empty_dataset_in_one_line(dataset: Path) -> None:
    ran = petastore("throughput", dataset, "--pool-type", "fibre")
    assert ran.exit_code == 2
    assert "--pool-type must be one of 'thread', 'process', 'dummy', got 'fibre'" in ran.stderr


def test_throughput_measures_with_decode_and_a_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = UnischemaField("image", "uint8", (16, 16, 3), CompressedImageCodec("png"))
    write_dataset(tmp_path / "photos", Unischema("Photos", [image]), {"image": np.zeros((20, 16, 16, 3), np.uint8)})
    (tmp_path / "mine.py").write_text(
        "from petastore import TransformSpec\n"
        "def halved(row):\n    return {'image': row['image'][:4]}\n"
        "spec = TransformSpec(halved)\n"
    )
    asked = ("throughput", str(tmp_path / "photos"), *BRIEFLY, "--json")
    hint = ("--decode", '{"image": {"size": [8, 8]}}')
    monkeypatch.syspath_prepend(tmp_path)
    sizes = []
    for more in ((), hint, (*hint, "--transform", "mine.halved"), (*hint, "--transform", "mine.spec")):
        ran = petastore(*asked, *more)
        assert (ran.exit_code, ran.stderr) == (0, "")
        sizes.append(json.loads(ran.stdout)["bytes_per_row"])
    assert sizes == [16 * 16 * 3, 8 * 8 * 3, 4 * 8 * 3, 4 * 8 * 3]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("--decode", '{"id": {"sized": 8}}'), "--decode must have the arguments of ImageDecode"),
        (("--decode", "8"), '--decode must be a JSON object such as {"image": {"size": [224, 224]}}, got \'8\''),
        (("--transform", "nowhere.to.be_found"), "--transform must name a function or a TransformSpec"),
        (("--transform", "json"), "--transform must name a function or a TransformSpec"),
    ],
)
def test_throughput_rejects_invalid_decode_and_transform(dataset: Path, wrong: tuple[str, str], said: str) -> None:
    ran = petastore("throughput", dataset, *wrong)
    assert ran.exit_code == 2
    assert said in ran.stderr


def test_tune_prints_rates_and_code(dataset: Path) -> None:
    ran = petastore("tune", dataset, "--batch-size", "50", "--seconds", "0.3", "--shuffle-rows")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert ran.stdout.startswith("setting ")
    assert "\nyour arguments " in ran.stdout
    assert f'make_reader(\n    "file://{dataset}",\n    shuffle_rows=True,\n' in ran.stdout


def test_tune_json_has_the_best_arguments_and_all_rates(dataset: Path) -> None:
    ran = petastore("tune", dataset, "--seconds", "0.2", "--columns", "id", "--json")
    assert (ran.exit_code, ran.stderr) == (0, "")
    found = json.loads(ran.stdout)
    assert set(found) == {"best", "advice", "code", "tried"}
    assert found["tried"][0]["arguments"] == {}
    assert found["tried"][0]["rows_per_second"][0] > 0
    assert "schema_fields=['id']" in found["code"]


def test_tune_shows_progress_on_terminals_only(dataset: Path) -> None:
    code, seen, printed = on_a_terminal("tune", dataset, "--seconds", "0.5", "--json", stream="stderr")
    assert code == 0
    assert "100" in seen
    assert "tried" in json.loads(printed)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--seconds", "0"), "petastore: --seconds must be a number above 0, got 0.0"),
        (("--batch-size", "0"), "petastore: --batch-size must be"),
        (("--decode", "{"), "--decode must be a JSON object"),
        (("--transform", "nowhere.at_all"), "--transform must name a function"),
    ],
)
def test_tune_reports_invalid_arguments_in_one_line(dataset: Path, more: tuple[str, str], message: str) -> None:
    ran = petastore("tune", dataset, *more)
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert message in ran.stderr
