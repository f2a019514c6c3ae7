"""Tests of the program that runs Petastorm's own tests, with a minimal fake Petastorm."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from petastore.errors import InvalidArgumentError
from tests.interop.petastorm_suite import copies, differences, run
from tests.interop.petastorm_suite.differences import Differences
from tests.interop.petastorm_suite.inner_names import is_here
from tests.interop.petastorm_suite.judged import judged
from tests.interop.petastorm_suite.one_module import Outcome
from tests.interop.petastorm_suite.substitutions import SUBSTITUTIONS, Substitution

CONFTEST = """
def pytest_addoption(parser):
    parser.addoption("--cache-synthetic-dataset", action="store_true")
"""
OF_READERS = """
import concurrent.futures, multiprocessing
import pytest
from petastorm.tests.shared import in_a_child
from petastorm.unischema import Unischema, _fullmatch
from petastorm.workers_pool.thread_pool import (
    ThreadPool)
class Derived(ThreadPool):
    number = 3
def test_the_switch_is_on():
    assert Unischema.__module__ == "petastore.schema.unischema"
def test_children_have_it_too():
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(in_a_child).result() == "petastore.schema.unischema"
def test_subclass_of_an_inner_name_is_a_class():
    assert Derived().number == 3
def test_of_inner_parts():
    assert _fullmatch("a.c", "abc")
class Several:
    pass
@pytest.mark.parametrize("number", [1, 2])
def test_different(number):
    assert number == 3
@pytest.mark.skip("not now")
def test_skipped():
    pass
"""
PAGE = """
## Modules of inner parts
| `workers_pool/tests/test_pools.py` | pools |
## Tests of inner parts
| `test_readers::test_of_inner_parts` | private |
## Different on purpose
| `test_readers::test_different` | three is more |
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Write a fake Petastorm with one module of tests and one of internals, and return its folder."""
    files = {
        "__init__.py": "__version__ = '9.9.9'\nraise AssertionError('Petastorm itself is not imported')\n",
        "tests/__init__.py": "",
        "tests/conftest.py": CONFTEST,
        "tests/test_shared.py": "def tested():\n    pass\n",
        "tests/shared.py": "def in_a_child():\n    import petastorm.unischema\n"
        "    return petastorm.unischema.Unischema.__module__\n",
        "tests/test_readers.py": OF_READERS,
        "workers_pool/tests/test_pools.py": "def test_pool():\n    pass\n",
    }
    for name, text in files.items():
        path = tmp_path / "source" / "petastorm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "source"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


@pytest.fixture(autouse=True)
def _nothing_is_substituted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SUBSTITUTIONS", ())


@pytest.mark.slow
def test_petastorm_suite_passes_when_only_listed_tests_fail(
    source: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([str(source), "--page", str(page)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert re.sub(r", \d+ s$", "", said[0]) == (
        "test_readers: 3 passed, 0 failed, 1 of inner parts, 2 different on purpose, 1 skipped"
    )
    assert said[1:4] == [
        "  inner part: test_of_inner_parts",
        "  on purpose: test_different[1]",
        "  on purpose: test_different[2]",
    ]
    assert said[4] == (
        "petastorm-tests: Petastorm 9.9.9, 1 module: 3 tests passed, 1 is of inner parts, 2 differ on purpose, "
        "1 was skipped; 1 module of inner parts was not run; all is as listed"
    )


@pytest.mark.slow
def test_petastorm_suite_reports_unlisted_failures(
    source: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text(PAGE.replace("test_readers::test_of_inner_parts", "test_readers::test_the_switch_is_on"))
    assert run.main([str(source), "--page", str(page), "--only", "test_readers"]) == 1
    said = capsys.readouterr().out
    assert "  failed: test_of_inner_parts: petastore.errors.LegacyNameError: petastorm.unischema._fullmatch" in said
    assert "  listed in tests/interop/petastorm_suite/differences.md, but test_the_switch_is_on passes" in said
    assert said.endswith("2 are not as listed\n")


@pytest.mark.slow
def test_petastorm_suite_runs_selected_tests(source: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([str(source), "--page", str(page), "--only", "test_readers", "--tests", "skipped or switch"]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


@pytest.mark.slow
def test_petastorm_suite_reports_modules_that_cannot_run(
    source: Path, page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "petastorm" / "tests" / "conftest.py").write_text("raise OSError('no such disk')\n")
    assert run.main([str(source), "--page", str(page)]) == 1
    said = capsys.readouterr().out
    assert said.startswith("test_readers: pytest ended with 4: ")
    assert "no such disk" in said
    assert "1 came to no end" in said


def test_petastorm_suite_raises_without_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.main([str(tmp_path)])
    assert ended.value.code == 2
    assert "is no checkout of Petastorm" in capsys.readouterr().err


def test_petastorm_suite_raises_for_missing_modules(
    source: Path, page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run.main([str(source), "--page", str(page), "--only", "test_writers"])
    assert "no module test_writers is run; there are test_readers" in capsys.readouterr().err
    page.write_text(PAGE.replace("test_pools", "test_ponds"))
    with pytest.raises(SystemExit):
        run.main([str(source), "--page", str(page)])
    assert "workers_pool/tests/test_ponds.py is listed" in capsys.readouterr().err


def test_petastorm_suite_raises_for_substitutions_without_a_match(source: Path, tmp_path: Path) -> None:
    kept = [Substitution(r"^import pytest$", "import pytest  # here", "said here")]
    copies.copied(source, tmp_path / "copy", kept)
    assert "import pytest  # here" in (tmp_path / "copy/petastorm/tests/test_readers.py").read_text()
    outdated = Substitution(r"\bnp\.unicode_\b", "np.str_", "NumPy 2 has np.str_ alone", files=("test_readers",))
    with pytest.raises(InvalidArgumentError, match=r"have no \\bnp\\.unicode_\\b; take these from substitutions\.py"):
        copies.copied(source, tmp_path / "other", [*kept, outdated])


def test_petastorm_suite_substitutions_keep_line_numbers(source: Path, tmp_path: Path) -> None:
    copies.copied(source, tmp_path / "copy", ())
    before, after = (
        (root / "petastorm/tests/test_readers.py").read_text().splitlines() for root in (source, tmp_path / "copy")
    )
    assert len(before) == len(after)
    assert before.index("class Several:") == after.index("class Several:")


@pytest.mark.parametrize(
    ("module", "name", "here"),
    [
        ("petastorm", "make_reader", True),
        ("petastorm.spark", "spark_dataset_converter", True),
        ("petastorm.unischema", "_fullmatch", False),
        ("petastorm.cache", "NullCache", False),
        ("petastorm.none", "name", False),
    ],
)
def test_name_of_petastorm_is_available_exactly_if_the_table_lists_it(module: str, name: str, here: bool) -> None:
    assert is_here(module, name) is here


def test_petastorm_suite_reports_listed_tests_that_pass_or_are_missing() -> None:
    listed = Differences({}, {("test_a", "test_one"): "inner", ("test_a", "test_two[2]"): "on purpose"})
    outcomes = [Outcome("test_one[1]", "failed", ""), Outcome("test_one[2]", "passed", "")]
    found = judged("test_a", outcomes, listed)
    assert len(found.inner) == 1
    assert found.outdated == ("test_one[2] passes", "test_two[2] is not there")
    assert not judged("test_b", outcomes, listed).is_as_listed
    assert judged("test_a", outcomes[:1], listed, all_ran=False).is_as_listed


def test_petastorm_suite_flaky_tests_may_pass_or_fail() -> None:
    listed = Differences({}, {("test_a", "test_one"): "by chance"})
    outcomes = [Outcome("test_one[1]", "failed", ""), Outcome("test_one[2]", "passed", "")]
    found = judged("test_a", outcomes, listed)
    assert found.is_as_listed
    assert (found.passed, found.on_purpose) == (1, (outcomes[0],))


def test_petastorm_suite_page_has_one_reason_per_test(repository: Path) -> None:
    text = (repository / differences.PAGE).read_text(encoding="utf-8")
    listed = differences.read(text)
    assert listed.modules
    assert set(listed.tests.values()) == {"inner", "on purpose", "by chance"}
    assert all(len(reason) > 10 for reason in listed.modules.values())
    # Every text that looks like a test is in a table row that was parsed.
    assert len(re.findall(r"`[a-z_]*::[^`]+`", text)) == len(listed.tests)


def test_petastorm_suite_raises_for_duplicate_entries() -> None:
    row = "| `test_a::test_one` | why |\n"
    with pytest.raises(InvalidArgumentError, match="test_a::test_one is listed twice"):
        differences.read(f"## Tests of inner parts\n{row}## Different on purpose\n{row}")


def test_petastorm_suite_substitutions_are_valid_patterns_with_a_reason() -> None:
    for one in SUBSTITUTIONS:
        re.compile(one.before)
        assert len(one.because) > 10
