"""The files that are run without extras are those that need none, however deep the import is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pythons.selection import optional_names, select

FILES = {
    "petastore/__init__.py": "",
    "petastore/plain.py": '"""\n>>> 1 + 1\n2\n"""\ndef lazy():\n    import torch\n',
    "petastore/quick.py": '"""\n>>> 1 + 1\n2\n"""\n',
    "petastore/adapter.py": "import torch\n",
    "tests/plan/test_plan.py": "import numpy\nfrom petastore import quick\n",
    "tests/plan/test_of_lazy.py": "from petastore.plain import lazy\n",
    "tests/plan/test_of_adapter.py": "from petastore import (adapter)\n",
    "tests/plan/test_inside.py": "def test():\n    from torch.utils import data\n",
    "tests/plan/test_program.py": 'PROGRAM = (\n    "import torch\\n"\n)\n',
    "tests/plan/test_by_another.py": "from tests.writes import rows\n",
    "tests/writes.py": "import torch as t\n",
    "tests/plan/test_of_sources.py": 'def test(repository):\n    (repository / "petastore").iterdir()\n',
    "tests/benchmarks/test_bench.py": "",
    "tests/test_repository.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_a_file_needs_what_it_imports_itself_or_by_others(tree: Path) -> None:
    selection = select(tree, {"torch", "jax"})
    assert [path.as_posix() for path in selection.run] == [
        "tests/plan/test_of_lazy.py",  # what a function of the package would import, its callers decide
        "tests/plan/test_plan.py",
        "petastore/quick.py",
    ]
    assert selection.left_out == {"torch": 5}


def test_what_is_about_the_repository_is_never_run(tree: Path) -> None:
    run = {path.name for path in select(tree, ()).run}
    assert run == {Path(name).name for name in FILES if "test_" in name or ">>>" in FILES[name]} - {
        "test_of_sources.py",
        "test_bench.py",
        "test_repository.py",
    }


def test_optional_names_are_those_of_others(repository: Path) -> None:
    names = optional_names(repository)
    assert {"torch", "jax", "pytest", "moto"} <= names
    assert not {"petastore", "tests", "benchmarks"} & names


def test_the_rooms_of_the_core_are_run_whole(repository: Path) -> None:
    run = set(select(repository, {"torch", "tensorflow", "jax", "pyspark", "moto", "obstore", "keras"}).run)
    for room in ("plan", "expressions", "cache", "predicates", "writers"):
        assert {path.relative_to(repository) for path in (repository / "tests" / room).rglob("test_*.py")} <= run
