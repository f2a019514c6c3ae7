"""The examples of the adapter run, and what its modules promise by name is there: JAX is installed here alone."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import petastore.adapters.jax

MODULES = sorted(path.stem for path in Path(petastore.adapters.jax.__file__).parent.glob("*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_what_it_lists_and_its_examples_run(name: str) -> None:
    module = importlib.import_module(f"petastore.adapters.jax{'' if name == '__init__' else '.' + name}")
    assert all(getattr(module, listed) is not None for listed in module.__all__)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_what_users_are_given_has_examples() -> None:
    finder = doctest.DocTestFinder(recurse=False)
    given = [getattr(petastore.adapters.jax, listed) for listed in petastore.adapters.jax.__all__]
    own = [found for found in given if found.__module__.startswith("petastore.adapters.jax.")]
    assert own
    assert all(any(found.examples for found in finder.find(one, one.__name__)) for one in own)
