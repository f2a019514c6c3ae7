"""The functions of `pyarrow.compute` are those of Arrow, whenever they are asked for."""

from __future__ import annotations

import pyarrow.compute
import pytest

from petastore.arrow import compute


def test_a_function_is_that_of_arrow() -> None:
    assert compute.binary_length is pyarrow.compute.binary_length
    assert compute.binary_length(["ab", None]).to_pylist() == [2, None]


def test_what_arrow_does_not_have_is_no_function_here() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = compute.no_such_function
