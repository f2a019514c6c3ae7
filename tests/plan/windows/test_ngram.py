"""Tests of `NGram`: its parameters, its fields by offset, and errors for invalid ones."""

from __future__ import annotations

import copy
import datetime as dt
from typing import Any

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError
from petastore.plan.windows.ngram import NGram

TIME = UnischemaField("time", np.int64)
X1, X2 = UnischemaField("x1", np.float32, (3,)), UnischemaField("x2", np.str_)
SCHEMA = Unischema("track", [TIME, X1, X2])


def test_ngram_length_includes_offsets_without_fields() -> None:
    ngram = NGram({3: [X1], -1: [TIME]}, 5, TIME)
    assert (ngram.length, ngram.offsets, list(ngram.fields), ngram.delta_threshold) == (5, range(-1, 4), [-1, 3], 5)


def test_ngram_resolves_regular_expressions_in_schema_order() -> None:
    ngram = NGram({0: ["x.*", TIME], 1: []}, 5, "ti.*")
    resolved = ngram.resolved(SCHEMA)
    assert resolved.fields == {0: [TIME, X1, X2], 1: []}
    assert resolved.timestamp_field == TIME
    assert ngram.fields == {0: ["x.*", TIME], 1: []}
    ngram.resolve_regex_field_names(SCHEMA)
    assert ngram == resolved


def test_ngram_resolves_fields_to_the_fields_of_the_dataset() -> None:
    wanted = UnischemaField("x1", np.int8)
    assert NGram({0: [wanted]}, 5, TIME).resolved(SCHEMA).fields == {0: [X1]}


def test_ngram_returns_field_names_and_schema_of_each_offset() -> None:
    ngram = NGram({-1: [X2, TIME], 1: [X1]}, 5, TIME)
    assert ngram.get_field_names_at_timestep(-1) == ["x2", "time"]
    assert ngram.get_field_names_at_timestep(0) == []
    assert ngram.get_field_names_at_all_timesteps() == [X2, TIME, X1]
    assert list(ngram.get_schema_at_timestep(SCHEMA, -1).fields) == ["time", "x2"]
    assert len(ngram.get_schema_at_timestep(SCHEMA, 0)) == 0


def test_ngrams_with_equal_fields_and_thresholds_are_equal() -> None:
    ngram = NGram({0: [X1, X2]}, 5, TIME)
    assert ngram == NGram({0: [X2, X1]}, 5.0, TIME)
    assert hash(ngram) == hash(NGram({0: [X2, X1]}, 5, TIME))
    for other in (NGram({1: [X1, X2]}, 5, TIME), NGram({0: [X1, X2]}, 6, TIME), NGram({0: [X1, X2]}, 5, TIME, False)):
        assert ngram != other
    assert copy.copy(ngram) == copy.deepcopy(ngram) == ngram


@pytest.mark.parametrize("fields", [None, {}, [X1], {0: X1}, {"0": [X1]}, {True: [X1]}, {0: [7]}, {0: []}])
def test_ngram_invalid_fields_raise(fields: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^fields of NGram must .*, got "):
        NGram(fields, 5, TIME)


@pytest.mark.parametrize("threshold", [None, "5", -1, float("nan"), True, dt.timedelta(-1), np.timedelta64("NaT"), 1j])
def test_ngram_invalid_thresholds_raise(threshold: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="delta_threshold"):
        NGram({0: [X1]}, threshold, TIME)


def test_ngram_invalid_parameters_raise() -> None:
    with pytest.raises(InvalidArgumentError, match="timestamp_field"):
        NGram({0: [X1]}, 5, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="timestamp_overlap"):
        NGram({0: [X1]}, 5, TIME, None)  # type: ignore[arg-type]


def test_ngram_pattern_without_a_unique_match_raises() -> None:
    with pytest.raises(
        InvalidArgumentError, match=r"must match fields of schema 'track' \('time', 'x1', 'x2'\), got 'y'"
    ):
        NGram({0: ["y"]}, 5, TIME).resolved(SCHEMA)
    with pytest.raises(InvalidArgumentError, match="matches 'x1', 'x2'"):
        NGram({0: [X1]}, 5, "x.*").resolved(SCHEMA)


def test_create_schema_view_raises_for_an_ngram() -> None:
    with pytest.raises(InvalidArgumentError, match="make_batch_reader"):
        SCHEMA.create_schema_view(NGram({0: [X1]}, 5, TIME))


def test_form_ngram_equals_petastorm() -> None:
    rows = [{"time": time, "x1": np.full(3, time, np.float32), "x2": f"t{time}"} for time in (0, 1, 2, 9, 10, 11)]
    ngram = NGram({0: ["x2"], 2: ["x.*"]}, 1, "time")
    windows = ngram.form_ngram(rows, SCHEMA)
    assert [window[0] for window in windows] == [{"x2": "t0"}, {"x2": "t9"}]
    assert [list(window) for window in windows] == [[0, 1, 2]] * 2
    assert [window[1] for window in windows] == [{}] * 2
    resolved = ngram.resolved(SCHEMA)
    named = resolved.make_namedtuple(SCHEMA, windows[1])
    assert (named[0].x2, named[1], named[2]._fields) == ("t9", (), ("x1", "x2"))
    assert ngram.form_ngram([], SCHEMA) == []
    with pytest.raises(
        InvalidArgumentError, match="rows must be sorted by 'time', got row 1 with a smaller value than"
    ):
        ngram.form_ngram(rows[::-1], SCHEMA)


def test_offsets_of_returns_the_window_offsets_that_have_a_field() -> None:
    ngram = NGram({2: [X1], -1: [X1, X2]}, 5, TIME)
    assert (ngram.offsets_of("x1"), ngram.offsets_of("x2"), ngram.offsets_of("time")) == ([-1, 2], [-1], [])
