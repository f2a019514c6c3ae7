"""Tests of the JAX adapter's docstring examples and exported names; JAX is installed only here."""

from __future__ import annotations

import doctest
import importlib

import pytest

import petastore.adapters.jax

MODULES = ["petastore.adapters.jax", "petastore.adapters.global_batches"]


@pytest.mark.parametrize("name", MODULES)
def test_jax_adapter_modules_export_existing_names_and_their_examples_run(name: str) -> None:
    module = importlib.import_module(name)
    assert all(getattr(module, listed) is not None for listed in module.__all__)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


def test_public_names_of_the_jax_adapter_have_examples() -> None:
    finder = doctest.DocTestFinder(recurse=False)
    given = [getattr(petastore.adapters.jax, listed) for listed in petastore.adapters.jax.__all__]
    own = [found for found in given if found.__module__ in MODULES]
    assert own
    assert all(any(found.examples for found in finder.find(one, one.__name__)) for one in own)
