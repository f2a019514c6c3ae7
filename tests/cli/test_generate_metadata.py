"""Tests of `petastore generate-metadata`: it adds metadata to Parquet files, with a schema named in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import petastore
from tests.cli.command import petastore as in_process

SCHEMA = (
    "import petastore\nSchema = petastore.Unischema('User', [petastore.UnischemaField('id', 'int64', nullable=True)])\n"
)


def run(*arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command, which has no working directory on `sys.path`, unlike `python -m`."""
    command = [Path(sys.executable).with_name("petastore"), "generate-metadata", *arguments]
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "users").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "users" / "0.parquet")
    (tmp_path / "users_schema.py").write_text(SCHEMA)
    return tmp_path


def test_generate_metadata_writes_the_named_schema(folder: Path) -> None:
    ran = run("users", "--unischema-class", "users_schema.Schema", folder=folder)
    url = (folder / "users").as_uri()
    line = f"{url}: wrote a manifest of 1 file, 1 row group, 2 rows, with the schema 'User'\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, line, "")
    assert petastore.open_dataset(folder / "users").schema.name == "User"
    pq.write_table(pa.table({"id": [3]}), folder / "users" / "1.parquet")
    again = in_process("generate-metadata", url, "--storage-options", "{}")
    line = f"{url}: wrote a manifest of 2 files, 2 row groups, 3 rows, with the schema 'User'\n"
    assert (again.exit_code, again.stdout) == (0, line)
    assert petastore.open_dataset(folder / "users").schema.name == "User"


def test_generate_metadata_names_columns_whose_types_do_not_unify(folder: Path) -> None:
    pq.write_table(pa.table({"id": ["a"]}), folder / "users" / "1.parquet")
    ran = in_process("generate-metadata", folder / "users")
    unreadable, written = ran.stdout.splitlines()
    assert (ran.exit_code, unreadable.partition(",")[0]) == (0, "column 'id' must have types that unify exactly")
    assert written.endswith("users: wrote a manifest of 2 files, 2 row groups, 3 rows, with no schema")


def test_generate_metadata_reports_invalid_arguments_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    for arguments, problem in (
        (["nothing here"], "nothing here"),
        (
            ["users", "--unischema-class", "users_schema.Other"],
            "unischema_class must be package.module.name of a schema, got 'users_schema.Other'",
        ),
        (["users", "--storage-options", "[]"], "--storage-options must be a JSON object"),
    ):
        ran = in_process("generate-metadata", *arguments)
        assert (ran.exit_code, ran.stdout) == (2, "")
        assert ran.stderr.startswith("petastore: ")
        assert problem in ran.stderr
        assert len(ran.stderr.splitlines()) == 1
    assert not (folder / "users" / "_petastore").exists()
