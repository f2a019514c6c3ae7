"""Tests of batch assembly: batches do not depend on the order of decoding tasks, and errors name file and row."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField, open_dataset
from petastore.dataset import Dataset
from petastore.decoding.decode import Decoded
from petastore.errors import DecodeError
from petastore.plan import LastBatch, Shard
from petastore.plan.plan import Span
from petastore.plan.request import OrderOptions
from petastore.readers.assembly.assemble import VALID_COLUMN, AssembledSpan, Assembler, of_spans
from petastore.readers.execution.execution import Execution
from petastore.readers.loaded.loading import Loads
from petastore.readers.loaded.row_group_reader import LoadedRowGroup
from petastore.work import InlinePool
from tests.readers.small import ROWS, a_row, execution_of, written


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return written(Path(tmp_path_factory.mktemp("assemble")) / "data")


SHUFFLED = OrderOptions(seed=3, shuffle_rows=True)


def spans_of(execution: Execution, batch: int = 4, rows: int = 8) -> Iterator[tuple[Span, dict[int, LoadedRowGroup]]]:
    """Yield the spans of a pass, each with the loaded row groups that it needs."""
    plan, datasets = execution.plan, execution.source.datasets
    loads = Loads(datasets, plan, execution.loaders, execution.files_of_pass(), None, InlinePool())
    held: dict[int, LoadedRowGroup] = {}
    for span in plan.spans(batch, rows_per_span=rows):
        for group, future in loads.submit(span, priority=0).items():
            loaded = future.result()
            held[group] = loaded[group] if isinstance(loaded, dict) else loaded
        yield span, {group: held[group] for group in span.needed.tolist()}
    loads.close()
    loads.take_back()


def assembled(assembler: Assembler, span: Span, loaded: Any, order: list[int] | None = None) -> AssembledSpan:
    work = assembler.begin(span, loaded)
    for number in order or range(len(work.tasks)):
        work.tasks[number]()
    made = work.finish()
    return made.result() if isinstance(made, Future) else made


def assembler_of(execution: Execution) -> Assembler:
    assert isinstance(execution.assembler, Assembler)
    return execution.assembler


def same(found: Any, wanted: Any) -> bool:
    return found is wanted is None or bool(np.array_equal(found, wanted))


@given(st.randoms(use_true_random=False))
def test_assembled_batches_do_not_depend_on_the_order_of_decoding_tasks(dataset: Dataset, random: Any) -> None:
    execution = execution_of(dataset, order=SHUFFLED)
    assembler = assembler_of(execution)
    seen = []
    for span, loaded in spans_of(execution):
        tasks = list(range(len(assembler.begin(span, loaded).tasks)))
        random.shuffle(tasks)
        made = assembled(assembler, span, loaded, tasks)
        for place in range(span.num_batches):
            batch = made.batch(place)
            assert batch.cursor == span.cursor_after(place)
            seen += batch["id"].tolist()
            for row, number in enumerate(batch["id"].tolist()):
                assert all(
                    same(batch[name][row] if not _is_missing(batch[name], row) else None, value)
                    for name, value in a_row(number).items()
                )
    assert sorted(seen) == list(range(ROWS))
    assert seen != sorted(seen)


def _is_missing(column: Any, row: int) -> bool:
    return isinstance(column, np.ma.MaskedArray) and bool(np.ma.getmaskarray(column)[row].all())


def test_columns_of_one_dtype_are_stacked_in_one_array(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["x", "maybe"], order=SHUFFLED)
    span, loaded = next(spans_of(execution))
    columns = assembled(assembler_of(execution), span, loaded).columns
    for names, stack in columns.stacks:
        for name, of_stack in zip(names, stack, strict=True):
            assert np.shares_memory(of_stack, columns.by_name[name].values)


def test_last_batch_pad_marks_repeated_rows_in_the_valid_column(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["id"], last_batch=LastBatch.PAD, shard=Shard(0, 1))
    marks = []
    for span, loaded in spans_of(execution, batch=10):
        made = assembled(assembler_of(execution), span, loaded)
        assert list(made.columns.by_name) == ["id", VALID_COLUMN]
        marks += made.columns.by_name[VALID_COLUMN].values.tolist()
    assert marks == [True] * ROWS + [False] * 7


def test_assembled_span_without_rows_has_all_columns(dataset: Dataset) -> None:
    execution = execution_of(dataset)
    span = next(execution.plan.spans(4, rows_per_span=4)).part(0, 0)
    made = assembled(assembler_of(execution), span, {})
    assert {name: len(column.values) for name, column in made.columns.by_name.items()} == dict.fromkeys(a_row(0), 0)


@pytest.mark.parametrize("later", [False, True])
def test_transform_receives_columns_and_the_offsets_of_batches(dataset: Dataset, later: bool) -> None:
    given_offsets: list[Any] = []

    def transform(columns: dict[str, Decoded], offsets: Any) -> Any:
        given_offsets.append(offsets.tolist())
        made = {"twice": Decoded(columns["id"].values * 2, None)}
        if not later:
            return made
        future: Future[dict[str, Decoded]] = Future()
        future.set_result(made)
        return future

    execution = execution_of(dataset, columns=["id"])
    schema = Unischema("after", [UnischemaField("twice", np.int64)])
    assembler = dataclasses.replace(assembler_of(execution), schema=schema, transform=of_spans(transform))
    span, loaded = list(spans_of(execution))[1]
    made = assembled(assembler, span, loaded)
    assert given_offsets == [span.offsets.tolist()]
    assert made.columns.stacks == ()
    assert made.batch(0)["twice"].tolist() == [8, 10, 12, 14]


def test_value_outside_the_dtype_raises_with_file_row_group_and_row(tmp_path: Path) -> None:
    ids = [1, 2, 3, 300, 5]
    pq.write_table(pa.table({"id": pa.array(ids, pa.int32())}), tmp_path / "part-7.parquet", row_group_size=2)
    declared = Unischema("s", [UnischemaField("id", np.uint8)])
    dataset = dataclasses.replace(open_dataset(str(tmp_path)), schema=declared)
    execution = execution_of(dataset)
    ((span, loaded),) = spans_of(execution, batch=5, rows=5)
    with pytest.raises(DecodeError) as caught:
        assembled(assembler_of(execution), span, loaded)
    problem = caught.value
    assert (problem.column, problem.file, problem.row_group, problem.row) == ("id", "part-7.parquet", 1, 1)


def test_decoded_sizes_of_text_are_known_before_decoding(dataset: Dataset) -> None:
    execution = execution_of(dataset, columns=["id", "word"])
    span, loaded = next(spans_of(execution))
    sizes = assembler_of(execution).decoded_sizes(span, loaded)
    assert set(sizes) == {"word"}
    assert sizes["word"].tolist() == [0, 68, 68, 68][: span.num_rows] or sizes["word"].shape == (span.num_rows,)
