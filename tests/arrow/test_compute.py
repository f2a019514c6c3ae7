"""The functions of `pyarrow.compute` are those of Arrow, whenever they are asked for."""

from __future__ import annotations

import pyarrow.compute
import pytest

from petastore.arrow import compute


def test_compute_function_equals_pyarrows() -> None:
    assert compute.binary_length is pyarrow.compute.binary_length
    assert compute.binary_length(["ab", None]).to_pylist() == [2, None]


def test_unknown_function_of_arrow_compute_raises() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = compute.no_such_function
