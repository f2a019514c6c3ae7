"""Tests of the Petastorm migration pages: they list every parameter, module and known defect."""

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
    """Return the text below a heading."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found is not None, title
    return found[1]


def test_petastorm_page_lists_each_parameter(page: str) -> None:
    text = section(page, "Each parameter of `make_reader` and `make_batch_reader`")
    for make in (petastore.make_reader, petastore.make_batch_reader):
        assert [name for name in inspect.signature(make).parameters if f"`{name}`" not in text] == []


def test_petastorm_page_lists_each_module(page: str) -> None:
    text = section(page, "Each module")
    tops = {inside.partition(".")[0] for inside in NAMES} - {"", "benchmark", "hdfs", "tools", "etl"}
    assert [top for top in sorted(tops) if f"`.{top}`" not in text] == []
    below = {inside for inside in NAMES if inside.startswith(("etl.", "tools.", "hdfs.", "spark."))}
    assert [inside for inside in sorted(below - {"etl.metadata_util"}) if f"`.{inside}`" not in text] == []


@pytest.fixture(scope="module")
def defects(repository: Path) -> str:
    return (repository / "docs" / "explanation" / "petastorm-compatibility.md").read_text(encoding="utf-8")


def test_petastorm_page_lists_each_checked_defect(defects: str) -> None:
    told = re.findall(r"^\| [^|]+ \| `([a-z_0-9]+)` \| [^|]+ \|$", defects, re.MULTILINE)
    assert sorted(told) == sorted(CHECKS)


OTHERS = {
    "With a predicate, timestamps lose their time zone": (
        "selecting/test_predicate.py",
        "test_defect_13_predicate_keeps_dtypes_and_time_zones",
    ),
    "Partitions are not pruned if a predicate also uses columns that are not partition keys": (
        "selecting/test_predicate.py",
        "test_defect_15_partition_parts_of_a_predicate_prune_files",
    ),
    "If a worker fails, the other workers wait forever": (
        "transforming/test_processes.py",
        "test_killed_worker_process_raises_at_once",
    ),
    "Reading a row-group index runs pickled code": (
        "storage/metadata/test_petastorm_index.py",
        "test_pickle_that_is_not_an_index_raises",
    ),
    "pickled metadata may run any code": (
        "storage/metadata/test_pickled.py",
        "test_pickle_parser_raises_for_names_not_allowed",
    ),
    "a run cannot resume mid-epoch": (
        "readers/test_reader_state.py",
        "test_killed_training_resumes_with_each_row_once",
    ),
}
"""Petastorm defects without a check in `defects`, and the test that shows that petastore does not have them."""


@pytest.mark.parametrize("defect", OTHERS)
def test_petastorm_page_defects_have_tests(defects: str, repository: Path, defect: str) -> None:
    assert defect in defects
    file, test = OTHERS[defect]
    assert f"\ndef {test}(" in (repository / "tests" / file).read_text(encoding="utf-8")
