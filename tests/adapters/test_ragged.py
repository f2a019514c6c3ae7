"""Forms of columns of free shape are checked at the call."""

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


def test_one_form_is_that_of_all_columns_of_free_shape_that_hold_numbers() -> None:
    assert forms_of("list", FIELDS, known=KNOWN) == {}
    assert forms_of("nested", FIELDS, known=KNOWN) == {"tokens": "nested", "page": "nested"}
    assert forms_of("padded", FIELDS, known=KNOWN) == {"tokens": Padded(0), "page": Padded(0)}
    assert forms_of(Padded(7), FIELDS, known=KNOWN) == {"tokens": Padded(7), "page": Padded(7)}


def test_forms_by_name_leave_the_others_as_they_are() -> None:
    forms: dict[str, Form] = {"tokens": Padded(255), "page": "list"}
    assert forms_of(forms, FIELDS, known=KNOWN) == {"tokens": Padded(255)}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("ragged", r"ragged='ragged' is no form .* 'list', 'padded', 'nested' and Padded"),
        (None, "ragged=None"),
        ({"tokens": 3}, "ragged=3"),
        ({"missing": "padded"}, r"'missing', which there is not; it is for those of free shape: 'tokens', 'page'"),
        ({"id": "padded"}, r"'id', whose values all have the shape \(\)"),
        ({"words": "padded"}, r"'words', whose values are str"),
    ],
)
def test_what_is_no_form_of_a_column_is_refused(asked: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        forms_of(asked, FIELDS, known=KNOWN)


def test_a_column_that_has_the_name_of_the_lengths_is_refused() -> None:
    taken = [*FIELDS, UnischemaField("page_lengths", "int32")]
    assert forms_of({"tokens": "padded"}, taken, known=KNOWN) == {"tokens": Padded(0)}
    with pytest.raises(InvalidArgumentError, match="adds a column 'page_lengths', but there is one already"):
        forms_of({"page": "padded"}, taken, known=KNOWN)


@pytest.mark.parametrize("value", [0, 255, 3.0, True, np.uint8(7)])
def test_a_value_that_the_dtype_holds_pads(value: Any) -> None:
    assert forms_of({"tokens": Padded(value)}, FIELDS, known=KNOWN) == {"tokens": Padded(value)}


@pytest.mark.parametrize("value", [-1, 256, 1.5, float("nan"), "0", None, [0], b"x", 2**70])
def test_a_value_that_the_dtype_does_not_hold_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"pads the column 'tokens' with .* which is no uint8"):
        forms_of({"tokens": Padded(value)}, FIELDS, known=KNOWN)


def test_floats_are_padded_with_any_number() -> None:
    for value in (0.1, float("nan"), np.inf, -3):
        assert list(forms_of({"page": Padded(value)}, FIELDS, known=KNOWN)) == ["page"]
    with pytest.raises(InvalidArgumentError, match="no float32"):
        forms_of({"page": Padded("0")}, FIELDS, known=KNOWN)
