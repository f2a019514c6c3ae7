"""Tests of window executions: fields per offset, windows across row groups, padding, batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petastore import NGram, TransformSpec
from petastore.dataset import Dataset
from petastore.errors import InvalidArgumentError
from petastore.plan import LastBatch
from petastore.plan.windows.windows import Windows
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.readers.reader import Reader
from petastore.readers.window_reader import execution_of_windows
from petastore.readers.window_scan import select_window_starts
from petastore.work.pools import Workers
from tests.readers.small import ROWS, plan_of, written
from tests.readers.transforms_to_send import unchanged

DUMMY = Workers("dummy")
NGRAM = NGram({-1: ["id", "x"], 1: ["id", "maybe"]}, 5, "id")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("window_execution")) / "data")


def executions(
    dataset: Dataset, *, spec: TransformSpec | None = None, batched: bool = False, **asked: Any
) -> tuple[Execution, Execution]:
    """Return the executions of a row reader and of a window reader."""
    ngram = NGRAM.resolved(dataset.schema)
    starts = select_window_starts(dataset, ngram, workers=DUMMY, filter_cache=False)
    plan = plan_of(dataset, columns=["id", "x", "maybe"], **asked)
    plan = dataset.planned(_ask(**asked), starts)
    rows = build_execution(dataset, plan, workers=DUMMY, transform=spec, batched=batched)
    return rows, execution_of_windows(rows, ngram, Windows(dataset.inventory.rows, None, starts, ngram.length))


def _ask(**asked: Any) -> Any:
    from petastore.plan.request import OrderOptions, PlanOptions

    return PlanOptions(columns=["id", "x", "maybe"], order=OrderOptions(shuffle_row_groups=False), **asked)


def test_window_fields_have_one_entry_per_offset(dataset: Dataset) -> None:
    rows, windows = executions(dataset)
    schema = windows.schema
    assert {field.name: field.shape for field in schema} == {"id": (2,), "x": (1,), "maybe": (1,)}
    assert windows.windows is not None
    assert windows.row_schema == rows.schema
    assert (windows.plan, windows.source) == (rows.plan, rows.source)
    assert windows.extended is not None
    assert windows.stacked_columns == []


def test_windows_across_row_groups_are_dicts_of_rows_by_offset(dataset: Dataset) -> None:
    _, execution = executions(dataset)
    with Reader(dataset, execution.plan, workers=DUMMY, build=lambda *_, **__: execution) as reader:
        windows = list(reader)
    assert [window[-1].id for window in windows] == list(range(ROWS - 2))
    assert all(window[1].id == window[-1].id + 2 for window in windows)
    assert {offset: row._fields for offset, row in windows[0].items()} == {-1: ("id", "x"), 0: (), 1: ("id", "maybe")}
    assert [window[1].maybe for window in windows][:3] == [2.0, None, 4.0]


def test_last_batch_pad_adds_a_valid_entry_to_windows(dataset: Dataset) -> None:
    _, execution = executions(dataset, last_batch=LastBatch.PAD)
    with Reader(dataset, execution.plan, workers=DUMMY, build=lambda *_, **__: execution) as reader:
        assert [window["valid"] for window in reader] == [True] * (ROWS - 2)


def test_window_batches_have_as_many_rows_as_the_largest_row_group(dataset: Dataset) -> None:
    _, execution = executions(dataset, batched=True)
    assert execution.rows_per_item == 5 // 3
    assert executions(dataset)[1].rows_per_item == 1


def test_windows_of_windows_and_without_any_field_raise(dataset: Dataset) -> None:
    _, windows = executions(dataset)
    assert windows.ngram is not None
    assert windows.windows is not None
    with pytest.raises(
        InvalidArgumentError, match="must form windows from rows, got a reader that already returns windows"
    ):
        execution_of_windows(windows, windows.ngram, windows.windows)
    gone = TransformSpec(unchanged, removed_fields=["id", "x", "maybe"], edit_fields=[("new", np.int8, (), False)])
    with pytest.raises(
        InvalidArgumentError,
        match=r"the transform must keep at least one field that NGram\(\{-1: \['id', 'x'\], 1: \['id', 'maybe'\]\},",
    ):
        executions(dataset, spec=gone)
