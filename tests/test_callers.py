"""Tests of `frames_inside_petastore`: warnings point to the caller's line outside petastore."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from petastore.callers import frames_inside_petastore

WARNS = """
def warn():
    warnings.warn("look here", stacklevel=frames_inside_petastore() + 1)

def call_warn():
    warn()
"""


def module(name: str) -> dict[str, Any]:
    """Return the namespace of a module with this name, with functions that warn."""
    names: dict[str, Any] = {
        "__name__": name, "warnings": warnings, "frames_inside_petastore": frames_inside_petastore,
    }  # fmt: skip
    exec(WARNS, names)  # noqa: S102 - whose name decides what is inside
    return names


@pytest.mark.parametrize("function", ["warn", "call_warn"])
def test_warning_points_to_the_callers_line_outside_petastore(function: str) -> None:
    inside = module("petastore.some.room")
    with pytest.warns(UserWarning, match="look here") as told:
        inside[function]()
    assert told[0].filename == __file__


def test_module_with_petastore_as_name_prefix_is_outside() -> None:
    assert frames_inside_petastore() == 0
    with pytest.warns(UserWarning, match="look here") as told:
        module("petastore_tests.room")["call_warn"]()
    assert told[0].filename == "<string>"
