"""A hint says which part of an image is wanted, has one spelling, and knows the shape that comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from petastore.codecs import ImageDecode
from petastore.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("hint", "stored", "comes_out"),
    [
        (ImageDecode(), (480, None, 3), (480, None, 3)),
        (ImageDecode(size=(8, 9)), (None, None), (8, 9)),
        (ImageDecode(region=(2, 0, 30, 40)), (None, None, 3), (30, 40, 3)),
        (ImageDecode(region=(2, 0, 30, 40)), (32, 40, 3), (30, 40, 3)),
        (ImageDecode(region=(2, 0, 30, 40), size=(8, 9), gray=True), (None, 64, 3), (8, 9)),
        (ImageDecode(gray=True), (480, 640), (480, 640)),
    ],
    ids=str,
)
def test_the_shape_that_comes_out_is_known(hint: ImageDecode, stored: Any, comes_out: Any) -> None:
    assert hint.shape_of(stored) == comes_out


@pytest.mark.parametrize("stored", [(31, 40, 3), (32, 39, 3), (32, None, 3)])
def test_a_region_that_reaches_beyond_what_is_declared_is_refused(stored: Any) -> None:
    hint = ImageDecode(region=(2, 0, 30, 40))
    if stored == (32, None, 3):
        assert hint.shape_of(stored) == (30, 40, 3)
        return
    with pytest.raises(InvalidArgumentError, match=r"\(2, 0, 30, 40\) reaches beyond images of shape"):
        hint.shape_of(stored)


@pytest.mark.parametrize(
    "wrong",
    [
        {"size": 128},
        {"size": (128,)},
        {"size": (0, 5)},
        {"size": (5.0, 5)},
        {"size": (True, 5)},
        {"size": (2**20, 2**20)},
        {"region": (0, 0, 5)},
        {"region": (-1, 0, 5, 5)},
        {"region": (0, 0, 0, 5)},
        {"region": "abcd"},
        {"gray": "yes"},
        {"gray": None},
    ],
)
def test_a_hint_that_says_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError, match="ImageDecode takes"):
        ImageDecode(**wrong)


def test_a_hint_has_one_spelling() -> None:
    assert ImageDecode([8, np.int64(9)]) == ImageDecode((8, 9))  # type: ignore[arg-type]
    assert len({ImageDecode((8, 9)), ImageDecode((8, 9)), ImageDecode((9, 8))}) == 2
