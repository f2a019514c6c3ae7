"""Tests of the page on the cost of writing: ratios within a round, bounds, the table and the machine."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pyarrow.dataset as pads
import pytest

from benchmarks.writing.__main__ import ENCODER, LEAST, LIKE, PETASTORM, lines, rows_of
from benchmarks.writing.data import raw_data, tensors
from benchmarks.writing.page import page_of
from benchmarks.writing.ways import PICTURES, WAYS


def figures(*rates: float) -> list[dict[str, float]]:
    return [{"rate": rate, "seconds": 2.0, "cpu": 4.0, "bytes": 1.0, "once": 4.25} for rate in rates]


def test_writing_ratio_compares_runs_of_the_same_round() -> None:
    found = {PETASTORM: figures(100, 10, 50), "rows": figures(300, 20, 150), ENCODER: figures(7)}
    table = list(lines(found))
    assert table[3].startswith("| rows | 150 | 20 – 300 | 13,333.3 | 4.2 s | | 3.00 × Petastorm, rows | ≥ 2 × | kept")
    assert table[4] == "| the encoder alone | 7 | 7 – 7 | 285,714.3 | 4.2 s | | | | |"


def test_slow_write_method_is_reported() -> None:
    found = {ENCODER: figures(100), "write_dataset, pictures": figures(89)}
    assert list(lines(found))[-1].endswith("0.89 × the encoder alone | ≥ 0.9 × | not kept |")


def test_write_methods_of_equal_prefix_are_compared_without_a_bound() -> None:
    name = "encode_dataframe, bytes"
    found = {PETASTORM: figures(100), LIKE[name]: figures(20), name: figures(50)}
    assert list(lines(found))[-1].endswith("| 2.50 × | 0.50 × Petastorm, rows | ≥ 5 × | not kept |")
    del found[PETASTORM]
    assert list(lines(found))[-1].endswith("| 2.50 × | | | |")


def test_every_write_bound_names_existing_methods() -> None:
    assert {name for name, (other, _) in LEAST.items() for name in (name, other)} <= set(WAYS)
    assert {*LIKE, *LIKE.values()} <= set(WAYS)


def test_compared_write_methods_write_equal_row_counts() -> None:
    assert {rows_of(name, 640) for name in PICTURES} == {80, 20}
    assert all(rows_of(name, 640) == rows_of(other, 640) for name, other in LIKE.items())


@pytest.mark.slow
def test_generated_images_are_distinct(tmp_path: Path) -> None:
    raw_data(tmp_path, "tensor", 200)
    raw_data(tmp_path, "image", 200)
    for kind, stored in itertools.product(("tensor", "image"), ("bytes", "cells")):
        table = pads.dataset(tmp_path / kind / stored).to_table()
        assert table["id"].to_pylist() == list(range(200))
        assert len(set(table[kind].to_pylist())) == 200
    arrays = pads.dataset(tmp_path / "tensor" / "arrays").to_table()["tensor"].to_pylist()
    np.testing.assert_array_equal(arrays, tensors(np.arange(200)).reshape(200, -1))


def test_writing_page_has_table_and_machine() -> None:
    page = page_of(["| a | b |"], "9 rows", {"CPU": "Abacus"})
    assert "\n* CPU: Abacus\n" in page
    assert ": 9 rows.\n\n| a | b |\n" in page
