"""Tests of decoded sizes of plain columns: an upper bound of the memory in Python and NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import UnischemaField
from petastore.codecs.plain import plain_sizes

TEXT = UnischemaField("x", np.str_)
BYTES = UnischemaField("x", np.bytes_)


def sizes(cells: pa.Array, field: UnischemaField) -> list[int]:
    found = plain_sizes(cells, field)
    assert found is not None
    return found.tolist()


def test_decoded_sizes_of_fixed_size_columns_are_none() -> None:
    assert plain_sizes(pa.array([1]), UnischemaField("x", "int64")) is None
    assert plain_sizes(pa.array([[1, 2]]), UnischemaField("x", "int64", (2,))) is None


@given(st.lists(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_decoded_sizes_of_text_are_an_upper_bound(words: list[str]) -> None:
    for stored in (pa.string(), pa.large_string()):
        said = sizes(pa.array(words, stored), TEXT)
        assert all(2 * len(word) <= size for word, size in zip(words, said, strict=True))
        assert said == [64 + 2 * len(word.encode()) for word in words]


def test_decoded_sizes_of_bytes_include_the_python_object() -> None:
    assert sizes(pa.array([b"", b"abc"]), BYTES) == [64, 67]
    assert sizes(pa.array([b"ab", b"cd"], pa.binary(2)), BYTES) == [64, 64]


def rows(cut: slice) -> tuple[pa.Array, list[Any]]:
    values = [[1, 2], [], [3], [4, 5, 6], [], [7]]
    return pa.array(values)[cut], values[cut]


@pytest.mark.parametrize("cut", [slice(None), slice(1, 4), slice(4, 5), slice(2, 2)])
def test_decoded_sizes_of_lists_are_correct_for_slices(cut: slice) -> None:
    cells, values = rows(cut)
    assert sizes(cells, UnischemaField("x", "int16", (None,))) == [2 * len(value) for value in values]


def test_decoded_sizes_of_nested_lists_count_all_items() -> None:
    field = UnischemaField("x", "float64", (None, None))
    assert sizes(pa.array([[[1.0], [2.0]], [], [[], [3.0, 4.0, 5.0]]]), field) == [16, 0, 24]


def test_decoded_sizes_of_text_lists_count_python_objects() -> None:
    field = UnischemaField("x", np.str_, (None,))
    assert sizes(pa.array([["a", "bc"], []]), field) == [64 + 2 + 64 + 4, 0]


def test_decoded_sizes_count_dictionary_text_in_each_row() -> None:
    words = pa.array(["a", "abc", "a", "abc"])
    assert sizes(words.dictionary_encode(), TEXT) == sizes(words, TEXT)
    assert sizes(pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), pa.array([], pa.string())), TEXT) == []


def test_decoded_sizes_of_structs_are_estimated() -> None:
    cells = pa.array([{"a": 1, "b": 2}] * 4)
    assert min(sizes(cells, UnischemaField("x", np.object_))) > 64
