"""The page for those who come from Petastorm is complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import petastore
from petastore.interop.petastorm_names import NAMES
from tests.interop.defects.checks import CHECKS


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "reference" / "petastorm.md").read_text(encoding="utf-8")


def section(page: str, title: str) -> str:
    """What stands under a heading."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def test_each_parameter_has_its_line(page: str) -> None:
    text = section(page, "Each parameter of `make_reader` and `make_batch_reader`")
    for make in (petastore.make_reader, petastore.make_batch_reader):
        assert [name for name in inspect.signature(make).parameters if f"`{name}`" not in text] == []


def test_each_module_has_its_line(page: str) -> None:
    text = section(page, "Each module")
    tops = {inside.partition(".")[0] for inside in NAMES} - {"", "benchmark", "hdfs", "tools", "etl"}
    assert [top for top in sorted(tops) if f"`.{top}`" not in text] == []
    below = {inside for inside in NAMES if inside.startswith(("etl.", "tools.", "hdfs.", "spark."))}
    assert [inside for inside in sorted(below - {"etl.metadata_util"}) if f"`.{inside}`" not in text] == []


@pytest.fixture(scope="module")
def defects(repository: Path) -> str:
    return (repository / "docs" / "explanation" / "what-petastorm-got-wrong.md").read_text(encoding="utf-8")


def test_each_check_of_a_defect_has_its_line_and_each_line_its_check(defects: str) -> None:
    told = re.findall(r"^\| [^|]+ \| `([a-z_0-9]+)` \| [^|]+ \|$", defects, re.MULTILINE)
    assert sorted(told) == sorted(CHECKS)


def test_tests_that_the_page_names_exist(defects: str, repository: Path) -> None:
    named = re.findall(r"`(tests/[^`:]+\.py)::(\w+)`", defects)
    assert len(named) >= 6
    for file, test in named:
        assert f"\ndef {test}(" in (repository / file).read_text(encoding="utf-8"), f"{file}::{test}"
