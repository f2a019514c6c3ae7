"""Tests of `petastore head`: the first rows as tables, half-block images, JSON and saved files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import Unischema, UnischemaField, open_dataset, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.dataset.stored_cells import first_rows
from tests.cli.command import petastore
from tests.cli.terminals import on_a_terminal

SCHEMA = Unischema(
    "Mixed",
    [
        UnischemaField("id", np.int64, nullable=True),
        UnischemaField("note", np.str_, nullable=True),
        UnischemaField("photo", np.uint8, (None, None, 3), CompressedImageCodec("png"), nullable=True),
        UnischemaField("icon", np.uint8, (2, 2, 4), NdarrayCodec()),
        UnischemaField("pose", np.float32, (None,), NdarrayCodec()),
    ],
)
PHOTO = np.array([[(255, 0, 0), (0, 255, 0)], [(0, 0, 255), (255, 255, 255)]], "uint8")
ICON = np.arange(16, dtype="uint8").reshape(2, 2, 4) * 16
NASTY = "\x1b]0;owned\x07[red]not red[/red]\n"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("head") / "mixed"
    more: dict[str, Any] = {"icon": ICON, "pose": np.array([0.5, 2], "float32")}
    rows = [
        {"id": 1, "note": NASTY, "photo": PHOTO, **more},
        {"id": None, "note": None, "photo": None, **more},
        {"id": 3, "note": "fine", "photo": PHOTO[:, :1], **more},
        {"id": 4, "note": "not shown", "photo": PHOTO, **more},
    ]
    write_dataset(path, SCHEMA, rows, rows_per_row_group=2)
    return path


def test_head_shows_rows_and_a_summary_line(dataset: Path) -> None:
    ran = petastore("head", dataset, "-n", "3", "--columns", "id", "--columns", "note", "--columns", "pho.*")
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert [line.rstrip() for line in ran.stdout.splitlines()] == [
        "row       id  note                                  photo",
        "─" * 63,
        r"  0        1  \x1b]0;owned\x07[red]not red[/red]\n  uint8 2×2×3",
        "  1  missing  missing                               missing",
        "  2        3  fine                                  uint8 2×1×3",
        "mixed: 3 of 4 rows, 3 of 5 fields",
    ]


def test_head_shows_five_rows_by_default(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": list(range(100, 120))}), tmp_path / "plain.parquet")
    said = petastore("head", tmp_path / "plain.parquet").stdout.splitlines()
    assert [line.split() for line in said[2:-1]] == [[str(number), str(100 + number)] for number in range(5)]
    assert said[-1] == "plain.parquet: 5 of 20 rows, 1 field"


def test_head_draws_images_in_half_blocks_on_color_terminals(dataset: Path) -> None:
    arguments: list[str | Path] = ["head", dataset, "-n", "1", "--columns", "photo"]
    code, seen, piped = on_a_terminal(*arguments, stream="stdout")
    assert (code, piped) == (0, "")
    red, green = "\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[0m", "\x1b[38;2;0;255;0;48;2;255;255;255m▀\x1b[0m"
    assert f"{red}{green}" in seen
    assert seen.count("▀") == 2
    _, seen, _ = on_a_terminal(*arguments, "--no-images", stream="stdout")
    assert "▀" not in seen
    assert "uint8 2×2×3 [255 0 0 0 255 0 0 0 …]" in seen


def test_head_escapes_control_characters_in_cells(dataset: Path) -> None:
    _, seen, _ = on_a_terminal("head", dataset, "-n", "1", "--columns", "note", stream="stdout")
    assert "owned" in seen
    assert re.sub(r"\x1b\[[0-9;]*m", "", seen).replace("\n", "").isprintable()


def test_head_saves_images_in_full_resolution(dataset: Path, tmp_path: Path) -> None:
    ran = petastore("head", dataset, "-n", "3", "--save-images", tmp_path / "a" / "b")
    assert ran.exit_code == 0
    closing = f"mixed: 3 of 4 rows, 5 fields, 5 images saved in {tmp_path / 'a' / 'b'}"
    assert ran.stdout.splitlines()[-1] == closing
    expected = {"0-photo": PHOTO, "2-photo": PHOTO[:, :1], "0-icon": ICON, "1-icon": ICON, "2-icon": ICON}
    assert sorted(path.name for path in (tmp_path / "a" / "b").iterdir()) == sorted(f"{name}.png" for name in expected)
    for name, pixels in expected.items():
        with PIL.Image.open(tmp_path / "a" / "b" / f"{name}.png") as image:
            np.testing.assert_array_equal(np.asarray(image), pixels)


def test_head_saves_nothing_without_image_columns(dataset: Path, tmp_path: Path) -> None:
    ran = petastore("head", dataset, "--columns", "id", "--save-images", tmp_path / "none")
    assert ran.stdout.splitlines()[-1].endswith("1 of 5 fields, no image columns, so no images were saved")
    assert not (tmp_path / "none").exists()


def test_head_reports_an_unwritable_folder_in_one_line(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    ran = petastore("head", dataset, "--save-images", tmp_path / "file")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
    assert "0-photo.png cannot be written" in ran.stderr


def test_head_json_prints_one_line_per_row(dataset: Path, tmp_path: Path) -> None:
    ran = petastore("head", dataset, "-n", "2", "--json", "--save-images", tmp_path)
    assert (ran.exit_code, ran.stderr) == (0, f"3 images saved in {tmp_path}\n")
    assert ran.stdout.isascii()
    icon = {"dtype": "uint8", "shape": [2, 2, 4]}
    photo = {"dtype": "uint8", "shape": [2, 2, 3], "file": str(tmp_path / "0-photo.png")}
    assert [json.loads(line) for line in ran.stdout.splitlines()] == [
        {
            "id": 1,
            "note": NASTY,
            "photo": photo,
            "icon": {**icon, "file": str(tmp_path / "0-icon.png")},
            "pose": [0.5, 2],
        },
        {
            "id": None,
            "note": None,
            "photo": None,
            "icon": {**icon, "file": str(tmp_path / "1-icon.png")},
            "pose": [0.5, 2],
        },
    ]


def test_head_json_contains_pixels_unless_images_are_saved(dataset: Path) -> None:
    ran = petastore("head", dataset, "-n", "1", "--json", "--no-images", "--columns", "photo")
    assert json.loads(ran.stdout) == {"photo": PHOTO.tolist()}


def test_head_shows_a_petastorm_dataset(fixtures_root: Path) -> None:
    ran = petastore("head", fixtures_root / "petastorm-0.13.1" / "Meadow", "-n", "2")
    assert (ran.exit_code, ran.stderr) == (0, "")
    lines = [line.rstrip() for line in ran.stdout.splitlines()]
    assert lines[0] == "row 0"
    assert "day    2026-01-01" in lines
    assert "depth  uint16 12×10" in lines
    assert "title  título 3 深い" in lines
    assert lines[-1] == "Meadow: 2 of 36 rows, 16 fields"


@pytest.mark.parametrize("release", ["0.5.1", "0.7.6"])
def test_head_shows_datasets_of_old_petastorm_releases(fixtures_root: Path, release: str) -> None:
    url = fixtures_root / "petastorm-legacy" / release
    ran = petastore("head", url, "--json", "-n", "3")
    assert ran.exit_code == 0
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    dataset = open_dataset(url)
    expected = list(first_rows(dataset, tuple(dataset.schema), 3))
    assert len(rows) == len(expected) == 3
    assert [row.keys() for row in rows] == [row.keys() for row in expected]


def test_head_names_unreadable_columns(tmp_path: Path) -> None:
    members = pa.StructArray.from_arrays([pa.array([2]), pa.array([3])], names=["a", "a"])
    pq.write_table(pa.table({"x": [1], "two": members}), tmp_path / "a.parquet")
    ran = petastore("head", tmp_path)
    assert ran.exit_code == 0
    *_, row, reason, closing = ran.stdout.splitlines()
    assert row.split() == ["0", "1"]
    assert reason.startswith("not shown: ")
    assert "'two'" in reason
    assert closing.endswith("1 of 1 row, 1 of 2 fields")
    as_json = petastore("head", tmp_path, "--json")
    assert (as_json.stdout, as_json.stderr) == ('{"x": 1}\n', f"{reason}\n")
    asked = petastore("head", tmp_path, "--columns", "two")
    assert asked.exit_code == 2
    assert "'two'" in asked.stderr


def test_head_reports_an_unknown_column_in_one_line(dataset: Path) -> None:
    ran = petastore("head", dataset, "--columns", "foto")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert "petastore: --columns must match fields" in ran.stderr
    assert "('id', 'note', 'photo', 'icon', 'pose'), got 'foto'" in ran.stderr


def test_head_of_an_empty_dataset_prints_the_summary_line(tmp_path: Path) -> None:
    write_dataset(tmp_path / "empty", SCHEMA, [])
    assert petastore("head", tmp_path / "empty").stdout == "empty: 0 of 0 rows, 5 fields\n"


def test_reference_page_shows_the_printed_output(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"^```python\n(.*?\"birds\", schema.*?)^```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(program, {})  # noqa: S102 - of our own page
    shown = re.findall(r"^```text\n\$ petastore (head [^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(shown) == 3
    for arguments, expected in shown:
        printed = petastore(*arguments.split(), COLUMNS="80").stdout
        assert "".join(f"{line.rstrip()}\n" for line in printed.splitlines()) == expected
