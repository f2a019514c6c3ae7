"""Tests of the documentation: the Python blocks of each page run, links exist, and code fits the page width.

Each page runs from top to bottom, in its own folder and namespace. Pages that need Spark run in
`tests/spark/test_pages.py`, those that need other engines in `neighbours/test_docs.py`.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.documentation import PAGES, ROOT, blocks_of, evaluate, leaves_running, name_of, needs_of
from tests.pace import patience

FENCE = re.compile(r"^```+(?P<language>[\w{.-]*)", re.MULTILINE)
MOST_COLUMNS = 85
"""Largest width of code on a page: at a screen width of 1366 pixels, longer lines would need scrolling."""

# Languages of blocks that are not run; any other name could hide a Python block from the tests.
NOT_RUN = {"", "bash", "console", "json", "sh", "text", "toml", "yaml"}
ELSEWHERE = {"spark", "neighbours"}


def _marks(page: Path) -> list[pytest.MarkDecorator]:
    """Return the pytest marks of a page that its comments ask for; TensorFlow and servers are slow to start."""
    marks = [getattr(pytest.mark, name) for name in sorted(needs_of(page))]
    slow = [pytest.mark.slow] if needs_of(page) & {"tf", "server"} else []
    return [*marks, *slow, *(pytest.mark.leaves_running(reason) for reason in leaves_running(page))]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, id=name_of(page), marks=_marks(page)) for page in PAGES if not needs_of(page) & ELSEWHERE],
)
def test_python_blocks_of_pages_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PETASTORE_") and name != "PETASTORE_CACHE"]:
        monkeypatch.delenv(name)  # variables of the test suite, such as PETASTORE_TESTS, are not arguments of a reader
    monkeypatch.chdir(tmp_path)
    evaluate(page)


def test_code_blocks_of_pages_that_are_not_python_have_a_known_language() -> None:
    others = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        closed = re.sub(r"^(```+)(\w+)\n.*?^\1$", r"\1\2", text, flags=re.MULTILINE | re.DOTALL)
        others[name_of(page)] = {match["language"] for match in FENCE.finditer(closed)} - NOT_RUN - {"python"}
    assert len(others) > 60
    assert {page: languages for page, languages in others.items() if languages} == {}


def test_code_on_pages_fits_without_scrolling() -> None:
    wide, blocks_seen = [], 0
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        blocks = re.findall(r"^ *```+\w*\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        blocks_seen += len(blocks)
        lines = (line for block in blocks for line in block.splitlines())
        wide += [(name_of(page), line) for line in lines if len(line) > MOST_COLUMNS]
    assert blocks_seen > 100
    assert wide == []


def test_relative_links_in_readme_contributing_and_changelog_exist() -> None:
    """Links of the documentation site are checked by mkdocs."""
    targets = [
        target
        for page in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
        for target in re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
        if "://" not in target
    ]
    assert len(targets) > 5
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_readme_begins_with_a_command_an_image_and_a_comparison() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:45])
    table = "| petastore | Petastorm | LitData | Mosaic Streaming |"
    shown = ["docs/images/", "pip install", "```python", table]
    assert sorted(shown, key=first_screen.index) == shown
    assert "Horovod" in first_screen.partition(shown[0])[0]  # the first paragraph names the supported frameworks
    (program,) = blocks_of(ROOT / "README.md")
    assert len([line for line in program.splitlines() if line]) <= 10
    assert "write_dataset(" in program.partition("DataLoader(")[0]


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorials/first-dataset.md"])
def test_first_program_of_a_page_imports_only_packages_the_page_installs(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    (extras,) = re.findall(r"pip install '\.\[([\w,]+)\]'", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    of_extras = [project["optional-dependencies"][name] for name in extras.split(",")]
    asked = [*project["dependencies"], *itertools.chain.from_iterable(of_extras)]
    installed = {re.split("[^a-z0-9-]", requirement)[0] for requirement in asked}
    brought_by = importlib.metadata.packages_distributions()
    imported = set(re.findall(r"^ *(?:>>> )?(?:import|from) (\w+)", "\n".join(blocks_of(ROOT / page)), re.MULTILINE))
    assert "petastore" in imported
    for name in imported - sys.stdlib_module_names - {"petastore"}:
        assert installed & {distribution.lower() for distribution in brought_by[name]}, name


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_readme_image_is_readable_on_a_phone(page: str) -> None:
    """A phone of 390 pixels shows an image at about 340 pixels; text must be at least 12 pixels high to be readable."""
    path = re.findall(r"[\w/.-]+\.svg", (ROOT / page).read_text(encoding="utf-8"))[0]
    picture = ((ROOT / page).parent / path).read_text(encoding="utf-8")
    width = float(re.findall(r'viewBox="0 0 (\d+) ', picture)[0])
    assert min(float(size) for size in re.findall(r'font-size="(\d+)"', picture)) * 340 / width >= 12


RATES = {"Tabular, rows/s": "tabular", "JPEG images, rows/s": "images", "8 KiB arrays, rows/s": "tensors"}
NAMES = {"petastore": "petastore", "Petastorm": "Petastorm", "LitData": "LitData"}


def test_readme_rates_equal_the_benchmark_results() -> None:
    """The rates are copied by hand after `make bench`, so the README can become outdated."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = _table(re.sub(r" \(\d\)", "", readme))
    page = (ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8")
    for label, workload in RATES.items():
        measured = _table(page.partition(f"\n## {workload}\n")[2].partition("\n## ")[0])
        for name, shown in zip(rows[""], rows[label], strict=True):
            assert shown == "not measured" or shown == measured[NAMES[name]][0], (label, name)


def _table(text: str) -> dict[str, list[str]]:
    """Return the cells of the table rows of a text, by the first cell."""
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    return {first.strip(): [cell.strip() for cell in cells] for first, *cells in rows}


@pytest.mark.slow
def test_training_tutorial_runs_on_two_ranks(tmp_path: Path) -> None:
    """The scripts are saved as files and started by torchrun, as the page says."""
    write, train = blocks_of(ROOT / "docs" / "tutorials" / "train-on-two-ranks.md")[:2]
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
