"""Modules of Petastorm's names: found, loaded on first use, and refused with what to use instead."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator

import pytest

from petastore.errors import LegacyNameError
from petastore.interop import petastorm
from petastore.interop.petastorm_modules import STANDS_FOR, LegacyModule, LegacyModules
from petastore.interop.petastorm_names import NAMES, Instead


@pytest.fixture
def switched_on() -> Iterator[None]:
    petastorm.install()
    yield
    petastorm.uninstall()


def test_every_module_of_the_table_is_found_under_its_root_alone(subtests: pytest.Subtests) -> None:
    finder = LegacyModules("petastorm")
    for inside in NAMES:
        with subtests.test(inside):
            spec = finder.find_spec(f"petastorm.{inside}".rstrip("."))
            assert spec is not None
            assert (spec.submodule_search_locations is not None) is (
                not inside or any(name.startswith(f"{inside}.") for name in NAMES)
            )
            assert finder.find_spec(f"another.{inside}") is None


@pytest.mark.usefixtures("switched_on")
def test_a_name_is_loaded_when_it_is_asked_for_and_kept() -> None:
    module = importlib.import_module("petastorm.unischema")
    assert isinstance(module, LegacyModule)
    assert "Unischema" not in vars(module)
    assert module.Unischema is importlib.import_module("petastore.schema.unischema").Unischema
    assert vars(module)["Unischema"] is module.Unischema


@pytest.mark.usefixtures("switched_on")
def test_what_is_listed_is_what_is_at_home() -> None:
    for inside, names in NAMES.items():
        module = importlib.import_module(f"petastorm.{inside}".rstrip("."))
        at_home = {name for name, entry in names.items() if isinstance(entry, str)}
        assert set(module.__all__) == at_home <= set(dir(module))
        assert not {name for name, entry in names.items() if isinstance(entry, Instead)} & set(dir(module))


@pytest.mark.usefixtures("switched_on")
def test_a_name_that_is_not_at_home_says_what_to_use_instead_and_an_unknown_one_that_it_is_unknown() -> None:
    module = importlib.import_module("petastorm.fs_utils")
    with pytest.raises(
        LegacyNameError,
        match=r"petastore has no petastorm.fs_utils.normalize_dir_url: make_reader and open_dataset take URLs",
    ):
        _ = module.normalize_dir_url
    with pytest.raises(AttributeError, match=r"module 'petastorm.fs_utils' has no attribute 'Nothing', here and in"):
        _ = module.Nothing


@pytest.mark.usefixtures("switched_on")
def test_modules_below_are_there_after_the_import_of_the_root() -> None:
    root = importlib.import_module("petastorm")
    assert root.__version__ == STANDS_FOR
    assert root.etl.dataset_metadata is sys.modules["petastorm.etl.dataset_metadata"]


@pytest.mark.usefixtures("switched_on")
def test_a_pickled_module_comes_back_also_where_the_switch_is_not_on() -> None:
    pickled = pickle.dumps(importlib.import_module("petastorm.ngram"))
    petastorm.uninstall()
    assert pickle.loads(pickled).NGram is importlib.import_module("petastore").NGram  # noqa: S301 - our own
    assert petastorm.is_installed()
