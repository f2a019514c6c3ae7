"""Tests of decoded columns with a mask of missing values, and of masks of rows."""

from __future__ import annotations

import numpy as np

from petastore.decoding.decode import Decoded
from petastore.schema.values import masked_rows


def test_decoded_mask_is_dropped_when_nothing_is_missing() -> None:
    values = np.arange(3)
    idle = Decoded(values, np.zeros(3, dtype=np.bool_)).without_idle_mask()
    assert idle.missing is None
    assert idle.values is values
    for column in (Decoded(values, None), Decoded(values, np.array([False, True, False]))):
        assert column.without_idle_mask() is column


def test_row_counts_as_masked_when_a_part_of_it_is_masked() -> None:
    column = np.ma.MaskedArray(np.zeros((3, 2, 2)), mask=False)
    column[1, 0, 1] = np.ma.masked
    assert masked_rows(column).tolist() == [False, True, False]
    assert masked_rows(np.ma.MaskedArray(np.zeros(2))).tolist() == [False, False]
    assert masked_rows(np.zeros((2, 3))).tolist() == [False, False]
    assert masked_rows(np.array(["a", None], dtype=object)).tolist() == [False, False]  # None is not a mask
