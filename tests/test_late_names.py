"""Tests of lazy imports in packages: a name is loaded on first use and then stored."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import pytest

from petastore.lazy import late_names

PACKAGES = ["petastore", "petastore.distributed", "petastore.plan", "petastore.readers"]


@pytest.fixture
def package(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("a_package_of_late_names")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    made.__dict__["__getattr__"] = late_names(made.__name__, {"Fraction": "fractions"})
    return made


def test_lazily_imported_name_is_loaded_once(package: ModuleType) -> None:
    assert "Fraction" not in vars(package)
    assert str(package.Fraction(1, 2)) == "1/2"
    assert vars(package)["Fraction"] is importlib.import_module("fractions").Fraction


def test_unknown_lazily_imported_name_raises_attribute_error(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'a_package_of_late_names' has no attribute 'Decimal'"):
        _ = package.Decimal


@pytest.mark.parametrize("name", PACKAGES)
def test_lazily_imported_names_exist_in_their_modules(name: str) -> None:
    package = importlib.import_module(name)
    homes = vars(package)["_HOMES"]
    assert set(homes) == set(package.__all__)
    for one, home in homes.items():
        assert getattr(package, one) is getattr(importlib.import_module(home), one)
