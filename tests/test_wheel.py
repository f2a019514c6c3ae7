"""Tests of the wheel: it contains only the package, and works in an environment without the repository."""

from __future__ import annotations

import email
import email.message
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import petastore
from tests.pythons.wheel import build_wheel

pytestmark = pytest.mark.slow

WRITE_AND_READ = """
import pathlib, sys
import numpy as np
import petastore
from petastore.codecs import NdarrayCodec
fields = [petastore.UnischemaField("id", "int64"), petastore.UnischemaField("wave", "f4", (8,), NdarrayCodec())]
rows = [{"id": i, "wave": np.full(8, i, "f4")} for i in range(100)]
petastore.write_dataset("waves", petastore.Unischema("Waves", fields), rows, rows_per_row_group=30)
with petastore.make_reader("waves", shuffle_rows=True, seed=7) as reader:
    total = sum(int(batch["wave"][:, 0].sum()) for batch in reader.iter_batches(32))
    print(total, pathlib.Path(petastore.__file__).parent)
"""


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(repository, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a virtual environment with the wheel, which also sees the packages installed in this environment."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(home / "bin" / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    # Only after the installation: otherwise pip would try to replace the petastore of this environment.
    site = next((home / "lib").glob("python3.*/site-packages"))
    seen = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "what-else-there-is.pth").write_text("\n".join(seen), encoding="utf-8")
    return home


def run(command: list[str | Path], folder: Path) -> str:
    """Return the output of a command that runs outside the repository, with a minimal environment."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={"PATH": "/usr/bin:/bin", "NO_COLOR": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(opened.read(name))


def test_wheel_contains_only_the_package(wheel: Path, repository: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        files = {name for name in opened.namelist() if ".dist-info/" not in name}
        information = {name.partition(".dist-info/")[2] for name in opened.namelist()} - {""}
    sources = (path for path in (repository / "petastore").rglob("*") if path.is_file())
    assert files == {path.relative_to(repository).as_posix() for path in sources if "__pycache__" not in path.parts}
    assert "petastore/py.typed" in files
    assert information == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_wheel_supports_every_promised_python(wheel: Path, repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    facts = metadata(wheel)
    assert wheel.name == f"petastore-{petastore.__version__}-py3-none-any.whl"
    assert facts["Requires-Python"] == project["requires-python"]
    assert facts.get_all("Classifier") == project["classifiers"]
    assert facts.get_all("Project-URL") == [f"{name}, {url}" for name, url in project["urls"].items()]


def test_wheel_metadata_has_the_repository_url(repository: Path) -> None:
    urls = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    settings = (repository / "mkdocs.yml").read_text(encoding="utf-8")
    site = dict(re.findall(r"^(site_url|repo_url): (\S+)$", settings, re.MULTILINE))
    assert site == {"site_url": urls["Documentation"], "repo_url": urls["Source"]}
    assert all(url.startswith(urls["Source"]) for name, url in urls.items() if name != "Documentation")


def test_installed_wheel_writes_and_reads_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    said = run([installed / "bin" / "python", "-I", "-W", "error", "-c", WRITE_AND_READ], tmp_path).split()
    assert said[0] == str(sum(range(100)))
    assert Path(said[1]).is_relative_to(installed)


def test_wheel_installs_the_command(installed: Path, tmp_path: Path) -> None:
    assert run([installed / "bin" / "petastore", "--version"], tmp_path) == f"petastore {petastore.__version__}\n"


def test_wheel_build_leaves_no_files_in_the_tree(wheel: Path, repository: Path) -> None:
    assert not [name for name in ("build", "petastore.egg-info") if (repository / name).exists()]
