"""Tests of the example notebooks: they run in Jupyter's kernel, and their stored output is up to date."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "examples").glob("*.ipynb"))
TOKEN = re.compile(r"(?<=part-00000-)[0-9a-f]{32}")


def shown(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the output of each cell with its id: text without random parts of file names, and pixels of images."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        (cell["id"], {kind: _comparable(kind, value) for kind, value in _parts(output)})
        for cell in cells
        for output in cell.get("outputs", ())
    ]


def _parts(output: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(output["name"], output["text"])] if output["output_type"] == "stream" else list(output["data"].items())


def _comparable(kind: str, value: Any) -> Any:
    if kind == "image/png":
        picture = Image.open(io.BytesIO(base64.b64decode(value)))
        return picture.size, picture.tobytes()
    return TOKEN.sub("", "".join(value))


@pytest.fixture(scope="module")
def run_anew(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the notebooks, and return the folder with the results."""
    folder = tmp_path_factory.mktemp("notebooks")
    command = [sys.executable, "-m", "tests.examples.notebooks", "--into", str(folder)]
    ran = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_outputs_equal_those_of_a_run(path: Path, run_anew: Path) -> None:
    """If this fails, `make notebooks` stores the new output; check the difference."""
    kept = shown(path)
    assert kept == shown(run_anew / path.name)
    assert len(kept) >= 5


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_have_no_warnings_and_no_local_paths(path: Path) -> None:
    assert "stderr" not in {name for _, parts in shown(path) for name in parts}
    text = path.read_text(encoding="utf-8")
    assert not [place for place in ("/tmp/", "/root/", "/home/", "file:///") if place in text]  # noqa: S108 - none is made


def test_first_notebook_shows_tables_and_images(repository: Path) -> None:
    parts = [part for _, parts in shown(repository / "examples" / "first_dataset.ipynb") for part in parts.items()]
    tables = re.findall(r"<caption>(\w+)", "".join(value for kind, value in parts if kind == "text/html"))
    assert tables == ["Inventory", "Unischema", "Plan", "Inventory"]
    assert [value[0] for kind, value in parts if kind == "image/png"] == [(512, 64)] * 2
