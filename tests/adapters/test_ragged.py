"""Tests of the `ragged=` option: forms by column, and errors at the call for invalid forms and fill values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from petastore.adapters.ragged import Form, Padded, RaggedWord, forms_of
from petastore.errors import InvalidArgumentError
from petastore.schema import UnischemaField

FIELDS = [
    UnischemaField("id", "int32"),
    UnischemaField("tokens", "uint8", (None,)),
    UnischemaField("page", "float32", (None, None)),
    UnischemaField("words", str, (None,)),
]
KNOWN: tuple[RaggedWord, ...] = ("list", "padded", "nested")


def test_ragged_as_text_applies_to_all_numeric_ragged_columns() -> None:
    assert forms_of("list", FIELDS, known=KNOWN) == {}
    assert forms_of("nested", FIELDS, known=KNOWN) == {"tokens": "nested", "page": "nested"}
    assert forms_of("padded", FIELDS, known=KNOWN) == {"tokens": Padded(0), "page": Padded(0)}
    assert forms_of(Padded(7), FIELDS, known=KNOWN) == {"tokens": Padded(7), "page": Padded(7)}


def test_ragged_dict_leaves_other_columns_unchanged() -> None:
    forms: dict[str, Form] = {"tokens": Padded(255), "page": "list"}
    assert forms_of(forms, FIELDS, known=KNOWN) == {"tokens": Padded(255)}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ragged", r"ragged must be 'list', 'padded', 'nested' or Padded\(value\), for all columns or in a dict by"),
        (None, r"ragged must be 'list', 'padded', 'nested' or Padded\(value\), for all columns or in a dict by"),
        (
            {"tokens": 3},
            r"ragged must be 'list', 'padded', 'nested' or Padded\(value\), for all columns or in a dict by",
        ),
        (
            {"missing": "padded"},
            r"ragged must name columns with a variable shape \('tokens', 'page'\), got 'missing', which does not",
        ),
        ({"id": "padded"}, r"'id', whose values all have the shape \(\)"),
        ({"words": "padded"}, r"'words', whose values are str"),
    ],
)
def test_unknown_ragged_form_raises(asked: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        forms_of(asked, FIELDS, known=KNOWN)


def test_ragged_padded_raises_when_the_lengths_column_exists() -> None:
    taken = [*FIELDS, UnischemaField("page_lengths", "int32")]
    assert forms_of({"tokens": "padded"}, taken, known=KNOWN) == {"tokens": Padded(0)}
    with pytest.raises(
        InvalidArgumentError,
        match=r"the name 'page_lengths' must be free, .* adds a column of this name for 'page', but it exists",
    ):
        forms_of({"page": "padded"}, taken, known=KNOWN)


@pytest.mark.parametrize("value", [0, 255, 3.0, True, np.uint8(7)])
def test_padding_accepts_values_of_the_dtype(value: Any) -> None:
    assert forms_of({"tokens": Padded(value)}, FIELDS, known=KNOWN) == {"tokens": Padded(value)}


@pytest.mark.parametrize("value", [-1, 256, 1.5, float("nan"), "0", None, [0], b"x", 2**70])
def test_padding_raises_for_values_outside_the_dtype(value: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match="ragged must pad column 'tokens' with a value that uint8 can hold, got"
    ):
        forms_of({"tokens": Padded(value)}, FIELDS, known=KNOWN)


def test_padding_of_floats_accepts_any_number() -> None:
    for value in (0.1, float("nan"), np.inf, -3):
        assert list(forms_of({"page": Padded(value)}, FIELDS, known=KNOWN)) == ["page"]
    with pytest.raises(
        InvalidArgumentError, match="ragged must pad column 'page' with a value that float32 can hold, got '0'"
    ):
        forms_of({"page": Padded("0")}, FIELDS, known=KNOWN)
