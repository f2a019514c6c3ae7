"""Tests of the repository: make targets, pinned packages, dependencies, extras, license and the site."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

VERBS = {
    *("accelerators", "against", "bench", "bench-quick", "bench-storage", "check", "clean", "defects", "demo", "docs"),
    *("bench-writing", "corpus", "endurance", "format", "fuzz", "help", "horovod", "laws", "look", "many-files"),
    *("mutants", "neighbours", "notebooks", "petastorm-tests", "pythons", "setup", "test", "test-all"),
    *("huge-row-groups", "soak", "tiny-row-groups", "tune-against-grid"),
}


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    return tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))


def test_core_depends_on_six_packages(project: dict[str, Any]) -> None:
    names = [re.split(r"[<>=]", dependency)[0] for dependency in project["project"]["dependencies"]]
    assert names == ["pyarrow", "fsspec", "numpy", "cloudpickle", "obstore", "xxhash"]


def test_pyarrow_release_with_wrong_values_is_excluded(project: dict[str, Any]) -> None:
    (pyarrow,) = (one for one in project["project"]["dependencies"] if one.startswith("pyarrow"))
    assert "!=25.0.0" in pyarrow


def test_core_uses_no_pyarrow_function_that_needs_pandas(repository: Path) -> None:
    """`to_pandas_dtype` imports pandas in pyarrow 18 to 25; `make pythons` runs the core without pandas."""
    modules = (repository / "petastore").rglob("*.py")
    assert [path.name for path in modules if ".to_pandas_dtype(" in path.read_text(encoding="utf-8")] == []


def test_extras_equal_those_named_in_errors(project: dict[str, Any], repository: Path) -> None:
    extras = project["project"]["optional-dependencies"]
    named = {
        extra
        for path in (repository / "petastore").rglob("*.py")
        for extra in re.findall(r"extra=\"([a-z-]+)\"", path.read_text(encoding="utf-8"))
    }
    assert named <= set(extras)
    assert set(re.findall(r"[\w-]+", extras["all"][0])) - {"petastore"} == set(extras) - {"all", "jax"}


def test_extra_tf_installs_one_tensorflow(project: dict[str, Any], repository: Path) -> None:
    """`tensorflow-cpu` replaces the modules of a `tensorflow` that is already installed."""
    assert [re.split("[<>=]", one)[0] for one in project["project"]["optional-dependencies"]["tf"]] == ["tensorflow"]
    setup = (repository / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"--editable '\.\[([a-z0-9,-]+)\]' --group dev", setup)
    assert set(extras.split(",")) == set(project["project"]["optional-dependencies"]) - {"all", "jax", "tf"}


@pytest.mark.parametrize(
    "page", ["README.md", "docs/index.md", "docs/tutorials/first-dataset.md", "docs/get-started/installation.md"]
)
def test_first_program_of_pages_can_run_twice(page: str, repository: Path) -> None:
    text = (repository / page).read_text(encoding="utf-8")
    assert re.search(r"write_dataset\([^`]*?mode=\"overwrite\"", text)


@pytest.mark.parametrize("constraints", ["constraints.txt", "constraints-neighbours.txt"])
def test_packages_are_pinned_to_one_release(constraints: str, repository: Path) -> None:
    lines = (repository / constraints).read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", pin) for pin in pins)


def test_make_help_lists_its_targets(repository: Path) -> None:
    shown = subprocess.run(
        ["make", "-C", repository, "--no-print-directory"], capture_output=True, text=True, check=True
    )
    assert set(re.findall(r"^  ([a-z-]+) ", shown.stdout, re.MULTILINE)) == VERBS


def plan_in_a_fresh_clone(verb: str, repository: Path, folder: Path) -> str:
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-neighbours.txt"):
        shutil.copy(repository / name, folder)
    builder = Path("neighbours", "horovod", "build_wheel.py")
    (folder / builder).parent.mkdir(parents=True)
    shutil.copy(repository / builder, folder / builder)
    # The first Python on PATH may be that of an activated environment in which the tests run.
    planned = ["make", "-n", verb, "PYTHON=/a/python3"]
    return subprocess.run(planned, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("verb", ["demo", "test", "check"])
def test_make_target_sets_up_a_fresh_clone(verb: str, repository: Path, tmp_path: Path) -> None:
    plan = plan_in_a_fresh_clone(verb, repository, tmp_path)
    assert plan.index("-m venv") < plan.index("--constraint constraints.txt --editable")


@pytest.mark.parametrize("verb", ["neighbours", "horovod"])
def test_neighbor_libraries_get_their_own_environment(verb: str, repository: Path, tmp_path: Path) -> None:
    plan = plan_in_a_fresh_clone(verb, repository, tmp_path)
    torch, petastore = (f"--constraint constraints-neighbours.txt {what}" for what in ("torch", "--editable"))
    assert plan.index("-m venv --clear .neighbours") < plan.index(torch) < plan.index(petastore)
    assert plan.index(petastore) < plan.index("neighbours/horovod/build_wheel.py")
    assert ".venv" not in plan


def test_accelerator_benchmarks_get_their_own_environment(repository: Path, tmp_path: Path) -> None:
    plan = plan_in_a_fresh_clone("accelerators", repository, tmp_path)
    assert plan.index("--no-deps dlio-benchmark mpi4py mpich pydftracer") < plan.index("-m benchmarks.accelerators")
    assert "build_wheel.py" not in plan
    assert ".venv" not in plan


def test_make_setup_names_a_missing_python_version(repository: Path, tmp_path: Path) -> None:
    shutil.copy(repository / "Makefile", tmp_path)
    ran = subprocess.run(
        ["make", "setup", "PYTHON="],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert ran.returncode != 0
    assert "no Python ≥ 3.11" in ran.stderr


def test_make_defects_without_petastorm_gives_advice(repository: Path) -> None:
    ran = subprocess.run(
        ["make", "-C", repository, "defects", "PETASTORM=/no/where"], capture_output=True, text=True, check=False
    )
    assert ran.returncode != 0
    assert "no Petastorm in /no/where; make bench-quick installs it" in ran.stderr


def test_make_petastorm_suite_without_petastorm_gives_advice(repository: Path, tmp_path: Path) -> None:
    shutil.copy(repository / "Makefile", tmp_path)
    ran = subprocess.run(
        ["make", "petastorm-tests"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.defpath},
    )
    assert ran.returncode != 0
    assert "git clone --branch v0.13.1 https://github.com/uber/petastorm" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


def test_make_corpus_without_files_gives_advice(repository: Path, tmp_path: Path) -> None:
    shutil.copy(repository / "Makefile", tmp_path)
    for options in ([], ["CORPUS=/no/where"]):
        ran = subprocess.run(
            ["make", "corpus", *options],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.defpath},
        )
        assert ran.returncode != 0
        assert "git clone https://github.com/apache/parquet-testing" in ran.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["Makefile"]


def test_ci_runs_only_make_targets(repository: Path) -> None:
    script = repository / ".ci" / "run"
    assert os.access(script, os.X_OK)
    verbs = re.findall(r"^ *step '[^']+' make ([\w-]+)$", script.read_text(encoding="utf-8"), re.MULTILINE)
    assert verbs == ["setup", "check", "test-all", "corpus", "neighbours"]


def test_license_is_the_full_apache_text(repository: Path, project: dict[str, Any]) -> None:
    text = (repository / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert project["project"]["license"] == "Apache-2.0"


def test_site_requests_nothing_from_other_hosts(repository: Path) -> None:
    """The site can be read offline, and no other host learns who reads it."""
    text = (repository / "mkdocs.yml").read_text(encoding="utf-8")
    assert "font: false" in text
    assert not re.search(r"cdn|unpkg|googleapis", text)
