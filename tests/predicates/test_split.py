"""Tests of `in_pseudorandom_split`: bit-identical to Petastorm's, for rows and for columns."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from petastore import make_batch_reader, make_reader
from petastore.errors import InvalidArgumentError
from petastore.predicates import in_pseudorandom_split
from tests.predicates.columns_to_ask import rows_of, scalars

# Parts in which Petastorm 0.13.1 puts these values for [0.5, 0.2, 0.3], recorded once.
OF_PETASTORM: list[tuple[Any, int]] = [
    (np.int64(0), 0),
    (np.int64(1), 0),
    (np.int64(-7), 0),
    (np.int32(12345), 1),
    (np.uint64(2**64 - 1), 2),
    (np.float32(0.1), 1),
    (np.float64(0.1), 1),
    (np.float64("nan"), 2),
    (np.float64(-0.0), 0),
    (np.bool_(True), 2),
    ("train/0001.jpg", 0),
    ("é中", 0),
    ("", 0),
    (b"ab", 1),
    (Decimal("1.0"), 0),
    (Decimal("1.00"), 2),
    (np.datetime64("2026-01-31"), 0),
    (np.datetime64("2026-01-31T10:11:12.345678"), 0),
    (None, 0),
]
# Parts of the ids 0 to 39 for ten fractions of 0.1, whose sums are rounded.
TENTHS_OF_PETASTORM = [
    [0, 3],
    [1, 13, 22, 25],
    [5, 6, 10],
    [12, 20, 34, 37],
    [19, 21, 38],
    [14, 23, 30],
    [15, 16, 24, 28, 39],
    [4, 31, 32, 36],
    [8, 18, 27, 33, 35],
    [2, 7, 9, 11, 17, 26, 29],
]


@pytest.mark.parametrize(("value", "part"), OF_PETASTORM, ids=repr)
def test_pseudorandom_split_puts_values_into_the_parts_of_petastorm(value: Any, part: int) -> None:
    parts = [in_pseudorandom_split([0.5, 0.2, 0.3], index, "x") for index in range(3)]
    assert [predicate.do_include({"x": value}) for predicate in parts] == [index == part for index in range(3)]


def test_pseudorandom_split_rounds_fractions_like_petastorm() -> None:
    ids = np.arange(40)
    parts = [in_pseudorandom_split([0.1] * 10, index, "x").do_include_batch({"x": ids}) for index in range(10)]
    assert [np.flatnonzero(part).tolist() for part in parts] == TENTHS_OF_PETASTORM


# Ids of Meadow that Petastorm 0.13.1's reader returned for the first half of a split by each scalar field.
MEADOW_OF_PETASTORM = {
    "id": [0, 1, 3, 5, 6, 10, 12, 13, 19, 20, 21, 22, 25, 34],
    "tiny": [0, 2, 3, 6, 7, 12, 18, 19, 20, 22, 23, 25, 26, 27, 28, 29, 31, 35],
    "small": [1, 2, 3, 7, 9, 10, 11, 12, 14, 15, 16, 17, 18, 24, 26, 27, 28, 33, 34],
    "ratio": [7, 8, 9, 10, 12, 15, 16, 17, 21, 22, 23, 24, 26, 27, 29, 32, 33],
    "score": [1, 2, 3, 8, 9, 12, 13, 16, 17, 18, 21, 27, 28, 29, 31, 32, 33, 34],
    "flag": [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34],
    "title": [0, 2, 6, 7, 9, 10, 12, 13, 14, 16, 17, 18, 19, 21, 24, 28, 29, 32, 34, 35],
    "price": [0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 14, 15, 18, 19, 20, 22, 26, 28, 33, 34],
}


@pytest.mark.parametrize("field", MEADOW_OF_PETASTORM)
def test_pseudorandom_split_of_a_petastorm_dataset_selects_the_same_rows(fixtures_root: Path, field: str) -> None:
    url = fixtures_root / "petastorm-0.13.1" / "Meadow"
    half = in_pseudorandom_split([0.5, 0.5], 0, field)
    for make in (make_reader, make_batch_reader):
        with make(url, ["id"], predicate=half, filter_cache=False) as reader:
            found = sorted(int(number) for batch in reader.iter_batches(8) for number in batch["id"])
        assert found == MEADOW_OF_PETASTORM[field]


def test_pseudorandom_split_hash_is_md5_modulo_2_to_the_63_minus_1() -> None:
    place = int(hashlib.md5(b"17", usedforsecurity=False).hexdigest(), 16) % (2**63 - 1)
    share = place / (2**63 - 2)
    for fractions, index, expected in [
        ([share - 1e-9, 1e-6], 0, False),
        ([share - 1e-9, 1e-6], 1, True),
        ([share + 1e-9, 1e-6], 0, True),
        ([share + 1e-9, 1e-6], 1, False),
    ]:
        assert in_pseudorandom_split(fractions, index, "x").do_include({"x": np.int64(17)}) is expected


@given(column=scalars(), index=st.integers(0, 2))
def test_pseudorandom_split_on_columns_equals_split_on_rows(column: NDArray[Any], index: int) -> None:
    predicate = in_pseudorandom_split([0.3, 0.4, 0.3], index, "x")
    columns = {"x": column}
    missing = float("nan") if column.dtype.kind == "f" else None
    values = [missing if row["x"] is None else row["x"] for row in rows_of(columns)]
    assert predicate.do_include_batch(columns).tolist() == [predicate.do_include({"x": value}) for value in values]


def test_pseudorandom_split_parts_are_disjoint_and_have_their_fractions() -> None:
    ids = {"x": np.arange(5000)}
    parts = [in_pseudorandom_split([0.25, 0.25, 0.5], index, "x").do_include_batch(ids) for index in range(3)]
    assert (np.sum(parts, axis=0) == 1).all()
    assert [round(float(part.mean()) * 4) for part in parts] == [1, 1, 2]


def test_equal_pseudorandom_split_parts_have_equal_cache_keys() -> None:
    def key(fractions: list[float], index: int) -> str | None:
        return in_pseudorandom_split(fractions, index, "x").cache_key()

    assert key([0.5, 0.5], 0) == key([0.5, 0.2, 0.3], 0)
    assert len({key([0.5, 0.5], 0), key([0.5, 0.5], 1), key([0.4, 0.6], 0)}) == 3


@pytest.mark.parametrize(
    ("fractions", "index"),
    [([0.5, 0.5], 2), ([0.5], -1), ([0.5], True), ([0.5], "0"), ([], 0), ([0.6, 0.6], 0), ([-0.1, 1], 0), ("1", 0)],
)
def test_invalid_pseudorandom_split_raises(fractions: Any, index: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"subset_index|fraction_list"):
        in_pseudorandom_split(fractions, index, "x")
