"""Tests of per-source transforms in a mixture: functions receive only their source's rows; order is preserved."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import petastore
from petastore import Unischema, UnischemaField
from petastore.decoding.decode import Decoded
from petastore.plan.batches.spans import Span
from petastore.plan.mixture.mixture import Mixture
from petastore.plan.order.grouped_rows import GroupedRows
from petastore.readers.execution.mixed_datasets import MixedDatasets
from petastore.readers.execution.own_transforms import OwnTransforms

SCHEMA = Unischema("number", [UnischemaField("id", np.int64, nullable=True)])


def three_datasets(tmp_path: Path) -> MixedDatasets:
    """Write three datasets with one row group of 50 rows each; return their mixture."""
    for number in range(3):
        petastore.write_dataset(tmp_path / str(number), SCHEMA, ({"id": row} for row in range(50)))
    datasets = tuple(petastore.open_dataset(tmp_path / str(number)) for number in range(3))
    return MixedDatasets(datasets, Mixture([dataset.plan() for dataset in datasets], [1, 1, 1]))


def span_of(groups: NDArray[np.int32], offsets: list[int]) -> Span:
    return Span(
        picked=GroupedRows(groups, np.arange(len(groups)), None),
        offsets=np.array(offsets),
        valid=None,
        epoch=0,
        first_epoch=0,
        consumed=1 + np.arange(len(offsets) - 1),
        ends_epoch=False,
        needed=np.unique(groups),
        fetch=(),
        read_orders=(),
        release=(),
        most_rows=len(groups),
    )


def test_transform_of_a_mixture_source_receives_only_rows_of_its_source(tmp_path: Path) -> None:
    mixed = three_datasets(tmp_path)

    @given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=5), min_size=1, max_size=4))
    def check(batches: list[list[tuple[int, bool]]]) -> None:
        rows = [row for batch in batches for row in batch]
        groups = np.array([source for source, _ in rows], dtype=np.int32)
        missing = np.array([gone for _, gone in rows], dtype=np.bool_)
        offsets = [0, *itertools.accumulate(map(len, batches))]
        calls: dict[int, list[int]] = {}
        later: list[tuple[Future[dict[str, Decoded]], dict[str, Decoded]]] = []

        def negated(columns: dict[str, Decoded], borders: NDArray[np.int64]) -> dict[str, Decoded]:
            calls[1] = borders.tolist()
            return {"id": Decoded(-columns["id"].values, columns["id"].missing)}

        def negated_later(columns: dict[str, Decoded], borders: NDArray[np.int64]) -> Future[dict[str, Decoded]]:
            future: Future[dict[str, Decoded]] = Future()
            later.append((future, negated(columns, borders)))
            calls[2] = borders.tolist()
            return future

        of_sources = OwnTransforms(mixed, (None, negated, negated_later), SCHEMA, "source")
        made = of_sources({"id": Decoded(np.arange(len(rows)), missing)}, span_of(groups, offsets))
        for future, columns in later:
            future.set_result(columns)
        found = made.result(0) if isinstance(made, Future) else made
        assert isinstance(made, Future) == (2 in groups)
        assert found["source"].values.tolist() == groups.tolist()
        assert found["id"].values.tolist() == (np.where(groups == 0, 1, -1) * np.arange(len(rows))).tolist()
        of_rows = found["id"].missing
        assert missing.tolist() == (np.zeros(len(rows), np.bool_) if of_rows is None else of_rows).tolist()
        if 2 in groups:
            of_batches = [sum(source == 2 for source, _ in batch) for batch in batches]
            assert calls[2] == [0, *itertools.accumulate(of_batches)], "where batches begin among the rows it is given"

    check()
