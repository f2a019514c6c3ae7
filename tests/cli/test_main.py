"""Tests of the `petastore` command: text on stdout, errors in one line on stderr, exit codes, help and completion."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from petastore import Unischema, UnischemaField, write_dataset
from petastore.cli.__main__ import main
from tests.cli.command import petastore


def in_a_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a new process."""
    command = [sys.executable, "-W", "error", "-m", "petastore.cli", *arguments]
    environment = {"COLUMNS": "100", "LINES": "40", "NO_COLOR": "1", "PATH": "/usr/bin:/bin"}
    checkout = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment | checkout)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "numbers"
    write_dataset(str(path), Unischema("Numbers", [UnischemaField("id", np.int64)]), [{"id": i} for i in range(1200)])
    return path


def test_inspect_ends_with_a_summary_line(dataset: Path) -> None:
    ran = petastore("inspect", dataset)
    assert (ran.exit_code, ran.stderr) == (0, "")
    assert "schema   Numbers, 1 field" in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("numbers: 1,200 rows, 1 field, 1 row group, ")


def test_inspect_prints_the_same_as_json(dataset: Path) -> None:
    ran = petastore("inspect", "--json", dataset)
    assert (ran.exit_code, ran.stderr) == (0, "")
    facts = json.loads(ran.stdout)
    assert (facts["rows"], facts["fields"][0]["name"], facts["fields"][0]["codec"]) == (1200, "id", None)


def test_error_prints_one_line_and_exits_with_2(tmp_path: Path) -> None:
    ran = in_a_process("inspect", tmp_path / "nothing")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("petastore: ")
    assert "nothing" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    ran = in_a_process("inspect", "--debug", tmp_path / "nothing")
    assert ran.returncode == 1
    assert "Traceback" in ran.stderr
    assert "DatasetNotFoundError" in ran.stderr


@pytest.mark.parametrize("options", ["anon", "[1]"])
def test_storage_options_are_a_json_object(dataset: Path, options: str) -> None:
    ran = petastore("inspect", dataset, "--storage-options", options)
    assert ran.exit_code == 2
    assert "--storage-options must be a JSON object" in ran.stderr
    assert f"got {options!r}" in ran.stderr


@pytest.mark.parametrize("package", ["typer", "rich"])
def test_command_without_its_packages_names_the_extra(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"petastore: the command line needs the package '{package}', which is not installed here: "
        "pip install 'petastore[cli]'\n"
    )


def test_version_option_equals_the_package_version() -> None:
    ran = petastore("--version")
    assert (ran.exit_code, ran.stdout) == (0, f"petastore {importlib.metadata.version('petastore')}\n")


VERBS = [
    "inspect",
    "plan",
    "view",
    "head",
    "throughput",
    "tune",
    "generate-metadata",
    "migrate",
    "export",
    "verify",
    "repair",
    "copy",
    "trace",
    "cache",
]
"""Commands in the order of `--help`; of the subcommands of `cache`, only `warm` reads a dataset."""


def test_help_lists_each_command_in_one_line() -> None:
    ran = petastore("--help")
    assert ran.exit_code == 0
    listed = ran.stdout[ran.stdout.index("Commands") :].splitlines()[1:-1]
    assert [line.split()[1] for line in listed if line.split()[0] == "│"] == VERBS


def test_each_command_has_its_section_in_the_reference(repository: Path) -> None:
    page = (repository / "docs" / "reference" / "command-line.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^## `petastore ([a-z-]+) ", page, re.MULTILINE)) == sorted(VERBS)


def test_help_of_each_command_lists_its_options() -> None:
    for verb in [*VERBS[:-1], "cache warm"]:
        ran = petastore(*verb.split(), "--help")
        assert (ran.exit_code, ran.stderr) == (0, ""), verb
        assert "Usage:" in ran.stdout, verb
        assert "--storage-options" in ran.stdout, verb


def in_bash(script: str, home: Path) -> str:
    """Return the output of a bash script that has the command on its PATH."""
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    # PYTHONPATH names this checkout, if it is not the installed one.
    checkout = {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}
    environment = {"HOME": str(home), "PATH": path, "COLUMNS": "100", **checkout}
    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    assert ran.stderr == ""
    return ran.stdout


def completed(line: str) -> str:
    """Return a script that prints the completions of the last word, like bash after pressing tab."""
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(line.split()) - 1}"
    return f'{asked}; _petastore_completion petastore; echo "${{COMPREPLY[@]}}"'


def test_shell_completion_completes_commands_and_options(tmp_path: Path) -> None:
    questions = "\n".join(
        map(completed, ["petastore in", "petastore cache p", "petastore head --no", "petastore nothing"])
    )
    said = in_bash(f'script="$(petastore --show-completion)"; eval "$script"\n{questions}', tmp_path)
    assert said.splitlines() == ["inspect", "prune", "--no-images", ""]


def test_shell_completion_is_installed_in_the_shells_directory(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("# mine\n", encoding="utf-8")
    assert "bash completion installed in" in in_bash("petastore --install-completion; true", tmp_path)
    assert (tmp_path / ".bashrc").read_text(encoding="utf-8").startswith("# mine\n")
    assert in_bash(f"source ~/.bashrc\n{completed('petastore th')}", tmp_path) == "throughput\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_requested_by_environment_variables(shell: str) -> None:
    line = {"COMP_WORDS": "petastore in", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "petastore in"}
    ran = petastore(_PETASTORE_COMPLETE=f"complete_{shell}", _TYPER_COMPLETE_FISH_ACTION="get-args", **line)
    assert ran.exit_code == 0
    assert "inspect" in ran.stdout
    assert "throughput" not in ran.stdout


def test_installed_command_is_next_to_python() -> None:
    command = [str(Path(sys.executable).with_name("petastore")), "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.startswith("petastore ")


def test_inspect_lists_every_field_when_piped(tmp_path: Path) -> None:
    fields = [UnischemaField(f"f{number:03}", np.int64) for number in range(100)]
    write_dataset(str(tmp_path / "wide"), Unischema("Wide", fields), [{field.name: 1 for field in fields}])
    assert "f099" in petastore("inspect", tmp_path / "wide").stdout
