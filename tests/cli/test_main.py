"""The command as its users start it: text on stdout, errors in one line on stderr, exit codes that say which."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset


def petastore(*arguments: str | Path, blocked: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; `blocked` is a package that cannot be found."""
    block = f"import sys; sys.modules[{blocked!r}] = None; " if blocked else ""
    code = f"{block}from petastore.cli.main import main; main()"
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    environment = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "numbers"
    write_dataset(str(path), Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


def test_inspect_shows_the_dataset_and_closes_with_one_line(dataset: Path) -> None:
    ran = petastore("inspect", dataset)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "schema   Numbers, 1 field" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("numbers: 1,200 rows, 1 field, 1 row group, ")


def test_inspect_prints_the_same_as_json(dataset: Path) -> None:
    ran = petastore("inspect", "--json", dataset)
    assert (ran.returncode, ran.stderr) == (0, "")
    facts = json.loads(ran.stdout)
    assert (facts["rows"], facts["fields"][0]["name"], facts["fields"][0]["codec"]) == (1200, "id", None)


def test_an_error_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    ran = petastore("inspect", tmp_path / "nothing")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("petastore: ")
    assert "nothing" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    ran = petastore("inspect", "--debug", tmp_path / "nothing")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "DatasetNotFoundError" in ran.stderr


@pytest.mark.parametrize("options", ["anon", "[1]"])
def test_storage_options_are_a_json_object(dataset: Path, options: str) -> None:
    ran = petastore("inspect", dataset, "--storage-options", options)
    assert ran.returncode == 2
    assert "--storage-options takes a JSON object" in ran.stderr


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_without_its_packages_the_command_says_what_to_install(package: str) -> None:
    ran = petastore("--help", blocked=package)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"petastore: the command line needs the package '{package}', which is not installed here: "
        "pip install 'petastore[cli]'\n"
    )


def test_the_version_is_that_of_the_package() -> None:
    ran = petastore("--version")
    assert (ran.returncode, ran.stdout) == (0, f"petastore {importlib.metadata.version('petastore')}\n")


VERBS = ["inspect", "throughput", "generate-metadata", "migrate", "export", "copy", "cache"]
"""As they are listed; `cache` has verbs of its own, of which `warm` reads a dataset."""


def test_help_lists_the_commands_with_one_line_each() -> None:
    ran = petastore("--help")
    assert ran.returncode == 0
    listed = ran.stdout[ran.stdout.index("Commands") :].splitlines()[1:-1]
    assert [line.split()[1] for line in listed if line.split()[0] == "│"] == VERBS


def test_each_command_has_its_section_in_the_reference(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## `petastore ([a-z-]+) ", page, re.MULTILINE)) == sorted(VERBS)


@pytest.mark.parametrize("verb", [*VERBS[:-1], "cache warm"])
def test_each_command_tells_its_options(verb: str) -> None:
    ran = petastore(*verb.split(), "--help")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "--storage-options" in ran.stdout


def test_installing_puts_the_command_beside_python() -> None:
    command = [str(Path(sys.executable).with_name("petastore")), "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("petastore ")


def test_what_is_piped_lists_every_field(tmp_path: Path) -> None:
    fields = [UnischemaField(f"f{number:03}", np.int64) for number in range(100)]
    write_dataset(str(tmp_path / "wide"), Unischema("Wide", fields), [{field.name: 1 for field in fields}])
    assert "f099" in petastore("inspect", tmp_path / "wide").stdout


def test_the_package_can_be_run_as_a_module() -> None:
    command = [sys.executable, "-m", "petastore.cli", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("petastore ")
