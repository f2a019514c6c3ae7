"""Tests of the warning about random generators that a transform function captures."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import petastore
from petastore import TransformSpec, make_reader
from petastore.transforming.captured_generators import captured_generators

GENERATOR, STATE, PYTHONS = np.random.default_rng(0), np.random.RandomState(0), random.Random(0)  # noqa: S311 - to be warned about
LEGACY = np.random


class Flips:
    def __init__(self) -> None:
        self.generators = [np.random.default_rng(0)]

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row | {"id": row["id"] * self.generators[0].integers(1, 3)}


def inside() -> Callable[[dict[str, Any]], dict[str, Any]]:
    generator = random.Random(1)  # noqa: S311 - to be warned about
    return lambda row: row | {"id": row["id"] * generator.randint(1, 2)}


def times(row: dict[str, Any], generator: Any) -> dict[str, Any]:
    return row | {"id": row["id"] * generator.integers(1, 3)}


CAPTURING: dict[str, tuple[Callable[..., Any], str]] = {
    "global Generator": (lambda row: row | {"id": row["id"] + GENERATOR.integers(3)}, "global variable 'GENERATOR'"),
    "global RandomState": (lambda row: row | {"id": row["id"] + STATE.randint(3)}, "global variable 'STATE'"),
    "global Random": (lambda row: row | {"id": row["id"] + PYTHONS.randint(0, 2)}, "global variable 'PYTHONS'"),
    "closure": (inside(), "variable 'generator' of the function around it"),
    "attribute": (Flips(), "attribute 'generators'"),
    "partial": (functools.partial(times, generator=np.random.default_rng(3)), "Generator"),
    "a function that it calls": (lambda row: times(row, GENERATOR), "global variable 'GENERATOR'"),
    "state of numpy": (lambda row: row | {"id": row["id"] + LEGACY.randint(3)}, "global state of numpy.random"),
    "state of random": (lambda row: row | {"id": row["id"] + random.getrandbits(1)}, "global state of the module"),
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("captured") / "numbers")
    petastore.write_dataset(path, {"id": np.arange(6)})
    return path


@pytest.mark.parametrize("which", CAPTURING)
def test_captured_random_generator_warns_at_the_call(url: str, which: str) -> None:
    func, words = CAPTURING[which]
    spec = TransformSpec(func, edit_fields=[])
    with pytest.warns(UserWarning, match=words) as caught, make_reader(url, transform_spec=spec):
        pass
    assert [warning.filename for warning in caught] == [__file__]


def test_random_generator_created_from_the_row_does_not_warn(url: str) -> None:
    def seeded(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"id": row["id"] + np.random.default_rng(row["id"]).integers(3)}

    with make_reader(url, transform_spec=seeded) as reader:
        assert len(list(reader)) == 6


def test_seeded_global_random_state_does_not_warn() -> None:
    def seeded(row: dict[str, Any]) -> int:
        random.seed(row["id"])
        return random.getrandbits(8)

    def imports(row: dict[str, Any]) -> float:
        import random as itself

        return itself.uniform(0, row["id"])  # noqa: S311 - to be named

    assert captured_generators(seeded) == []
    assert captured_generators(imports) == ["the global state of the module random"]
    assert captured_generators(np.mean) == captured_generators(dict) == []
