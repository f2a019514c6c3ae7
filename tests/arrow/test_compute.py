"""Tests of the lazy import of `pyarrow.compute`: functions are those of pyarrow."""

from __future__ import annotations

import pyarrow.compute
import pytest

from petastore.arrow import compute


def test_lazy_compute_function_is_the_function_of_pyarrow_compute() -> None:
    assert compute.binary_length is pyarrow.compute.binary_length
    assert compute.binary_length(["ab", None]).to_pylist() == [2, None]


def test_unknown_lazy_compute_function_raises() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = compute.no_such_function
