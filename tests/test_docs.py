"""Every Python block of the documentation runs: each page from top to bottom, in a folder and namespace of its own."""

from __future__ import annotations

import doctest
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

from tests.pace import patience

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NEEDS = re.compile(r"<!-- needs: (?P<names>[a-z, ]+) -->")
LEAVES = re.compile(r"<!-- leaves running: (?P<reason>[^>]+) -->")
FENCE = re.compile(r"^```+(?P<language>[\w{.-]*)", re.MULTILINE)
MOST_COLUMNS = 85
"""Of code on a page: so much is seen of a line at 1366 pixels, between both columns of links."""

# What a block that is not run may call itself; anything else would be a Python block under another name.
NOT_RUN = {"", "bash", "console", "json", "sh", "text", "toml", "yaml"}


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    """Marks that a page asks for in comments."""
    text = page.read_text(encoding="utf-8")
    names = [name.strip() for found in NEEDS.finditer(text) for name in found["names"].split(",")]
    leaves = [pytest.mark.leaves_running(found["reason"]) for found in LEAVES.finditer(text)]
    return [*(getattr(pytest.mark, name) for name in names), *leaves]


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def _is_run_here(page: Path) -> bool:
    """Programs that need other engines are run by `neighbours/test_docs.py`."""
    return not any("neighbours" in found["names"] for found in NEEDS.finditer(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=_name(page), marks=_marks(page)) for page in PAGES if _is_run_here(page)]
)
def test_the_python_blocks_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sybil = Sybil([PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)])
    examples = list(sybil.parse(page).examples())
    assert len(examples) >= len(_blocks(page))
    for example in examples:
        example.evaluate()


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_block_is_python_and_run_or_says_that_it_is_something_else(page: Path) -> None:
    closed = re.sub(r"^(```+)(\w+)\n.*?^\1$", r"\1\2", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert {match["language"] for match in FENCE.finditer(closed)} <= NOT_RUN | {"python"}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=_name)
def test_code_on_a_page_is_seen_without_scrolling(page: Path) -> None:
    blocks = re.findall(r"^ *```+\w*\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [line for block in blocks for line in block.splitlines() if len(line) > MOST_COLUMNS] == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(page: str) -> None:
    """Those of the site are checked by mkdocs."""
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []


def test_the_readme_begins_with_what_to_type_a_picture_and_a_comparison() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])
    table = "| petastore | Petastorm | LitData | Mosaic Streaming |"
    shown = ["docs/images/", "pip install", "```python", table]
    assert sorted(shown, key=first_screen.index) == shown
    assert "Horovod" in first_screen.partition(shown[0])[0]  # what it feeds stands in the first paragraph
    (program,) = _blocks(ROOT / "README.md")
    assert len([line for line in program.splitlines() if line]) <= 10
    assert "write_dataset(" in program.partition("DataLoader(")[0]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorials/first-dataset.md"])
def test_a_first_program_imports_what_the_command_before_it_installs_and_nothing_else(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (extras,) = re.findall(r"pip install '\.\[([\w,]+)\]'", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_extras = [project["optional-dependencies"][name] for name in extras.split(",")]
    asked = [*project["dependencies"], *itertools.chain.from_iterable(of_extras)]
    installed = {re.split("[^a-z0-9-]", requirement)[0] for requirement in asked}
    brought_by = importlib.metadata.packages_distributions()
    imported = set(re.findall(r"^ *(?:>>> )?(?:import|from) (\w+)", "\n".join(_blocks(ROOT / page)), re.MULTILINE))
    assert "petastore" in imported
    for name in imported - sys.stdlib_module_names - {"petastore"}:
        assert installed & {distribution.lower() for distribution in brought_by[name]}, name


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_the_first_picture_can_be_read_on_a_telephone(page: str) -> None:
    """Of 390 pixels a page leaves some 340 to a picture; 12 pixels is the smallest text that is read without effort."""
    (path,) = re.findall(r"[\w/.-]+\.svg", (ROOT / page).read_text(encoding="utf-8"))
    picture = ((ROOT / page).parent / path).read_text(encoding="utf-8")
    width = float(re.findall(r'viewBox="0 0 (\d+) ', picture)[0])
    assert min(float(size) for size in re.findall(r'font-size="(\d+)"', picture)) * 340 / width >= 12


RATES = {"Tabular, rows/s": "tabular", "JPEG images, rows/s": "images", "8 KiB arrays, rows/s": "tensors"}
NAMES = {"petastore": "petastore", "Petastorm": "Petastorm", "LitData": "LitData"}


def test_the_rates_of_the_readme_are_those_of_the_benchmarks() -> None:
    """After `make bench` they are copied by hand: here is who reminds of it."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = _table(re.sub(r" \(\d\)", "", readme))
    page = (ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8")
    for label, workload in RATES.items():
        measured = _table(page.partition(f"\n## {workload}\n")[2].partition("\n## ")[0])
        for name, shown in zip(rows[""], rows[label], strict=True):
            assert shown == "not measured" or shown == measured[NAMES[name]][0], (label, name)


def _table(text: str) -> dict[str, list[str]]:
    """The cells of the rows of the tables in a text, by the first cell."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {first.strip(): [cell.strip() for cell in cells] for first, *cells in rows}


@pytest.mark.slow
def test_the_training_tutorial_runs_on_two_ranks(tmp_path: Path) -> None:
    """As its reader would: the script saved as a file and started by torchrun."""
    write, train = _blocks(ROOT / "docs" / "tutorials" / "train-on-two-ranks.md")[:2]
    (tmp_path / "write.py").write_text(write, encoding="utf-8")
    (tmp_path / "train.py").write_text(train, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "write.py"], cwd=tmp_path, check=True, env=environment)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    ran = subprocess.run(
        torchrun, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment, timeout=patience(100)
    )
    assert ran.returncode == 0, ran.stderr
    steps = re.findall(r"rank \d of 2: (\d+) steps", ran.stdout)
    assert len(steps) == 2, ran.stdout
    assert steps[0] == steps[1]
