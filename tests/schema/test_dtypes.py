"""Tests of dtype names: each dtype has one canonical name that round-trips; invalid dtypes raise."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from petastore.errors import SchemaError
from petastore.schema.dtypes import canonical_dtype, dtype_from_name, dtype_name

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(),
    hnp.unsigned_integer_dtypes(),
    hnp.floating_dtypes(),
    hnp.complex_number_dtypes(),
    hnp.datetime64_dtypes(),
    hnp.timedelta64_dtypes(),
    st.sampled_from([str, bytes, int, float, bool, Decimal, np.object_, "str", "decimal", np.dtype("U7")]),
)


@given(DTYPES)
def test_dtype_name_round_trips(dtype: Any) -> None:
    canonical = canonical_dtype(dtype)
    assert canonical_dtype(canonical) == canonical
    assert dtype_from_name(dtype_name(dtype)) == canonical


@pytest.mark.parametrize("dtype", [None, "none", "x", 3, [("a", "i4")], np.void, "V4", {}])
def test_invalid_dtype_raises(dtype: Any) -> None:
    with pytest.raises(SchemaError):
        canonical_dtype(dtype)


@pytest.mark.parametrize("name", ["", "i4", "int", "float", "int32,int32", "<U4", "datetime64[us", "O", "void"])
def test_dtype_name_that_is_not_canonical_raises(name: str) -> None:
    with pytest.raises(SchemaError):
        dtype_from_name(name)
