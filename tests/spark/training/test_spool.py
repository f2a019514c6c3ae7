"""Tests of a rank's rows on local disk: exchange of rows between ranks, deleted files, one shared plan."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from multiprocessing import AuthenticationError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from petastore import Unischema, UnischemaField
from petastore.errors import InvalidArgumentError, WorkerError
from petastore.plan.order.parts import Parts
from petastore.plan.request import Shard
from petastore.schema.arrow import storage_schema
from petastore.spark.dataframe import encode_batches
from petastore.spark.training import LocalRows
from petastore.spark.training.exchange import Move, hand_out, listening, moves, taken
from petastore.spark.training.spool import Spool
from petastore.writers.parquet import FileLayout

SCHEMA = Unischema("points", [UnischemaField("id", "int64"), UnischemaField("xy", "float32", (2,))])
STORED = storage_schema(SCHEMA)


def cells(begin: int, stop: int) -> Iterator[pa.RecordBatch]:
    ids = np.arange(begin, stop)
    xy = pa.array([[number, number] for number in ids.tolist()], pa.list_(pa.float32()))
    return encode_batches([pa.record_batch({"id": ids, "xy": xy})], SCHEMA)


def layout_of(**asked: int | None) -> FileLayout:
    return FileLayout.of(**dict.fromkeys(("rows_per_row_group", "row_group_size_mb", "rows_per_file")) | asked)


def spool_of(folder: Path, rank: int, rows: range, *, rows_per_file: int | None = 7) -> Spool:
    folder.mkdir()
    spool = Spool(str(folder), SCHEMA, layout_of(rows_per_row_group=3, rows_per_file=rows_per_file), rank)
    if rows:
        spool.append(cells(rows.start, rows.stop))
    return spool


def ids_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("id").to_pylist()]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=4))
def test_ranks_exchange_rows_from_their_local_files(tmp_path_factory: pytest.TempPathFactory, there: list[int]) -> None:
    there[-1] += len(there)
    folder, ranks = tmp_path_factory.mktemp("spools"), len(there)
    ends = np.cumsum(there).tolist()
    spools = [
        spool_of(folder / str(rank), rank, range(end - rows, end))
        for rank, (rows, end) in enumerate(zip(there, ends, strict=True))
    ]
    parts = Parts.of(sum(there), ranks=ranks)
    for move in moves(there, parts.rows):
        spools[move.taker].append(spools[move.giver].take_last(move.rows))
    assert [spool.num_rows for spool in spools] == list(parts.rows)
    stored = [spool.stored() for spool in spools]
    seen: list[int] = []
    steps = set()
    for rank, spool in enumerate(spools):
        spool.publish(stored, "a test")
        rows = LocalRows(spool.folder, Shard(rank, ranks), sum(there), parts.lanes)
        with rows.make_reader(shuffle_rows=True, seed=1) as reader:
            batches = list(reader.iter_batches(4))
            steps.add(len(batches))
            seen += [int(number) for batch in batches for number in batch["id"]]
            assert all((batch["xy"][:, 1] == batch["id"]).all() for batch in batches)
    assert sorted(seen) == list(range(sum(there)))
    assert len(steps) == 1


def test_taking_last_rows_of_a_rank_keeps_order_and_deletes_empty_files(tmp_path: Path) -> None:
    spool = spool_of(tmp_path / "a", 0, range(20))
    assert ids_of(spool.take_last(9)) == list(range(11, 20))
    assert spool.num_rows == 11
    assert ids_of(spool.take_last(11)) == list(range(11))
    assert list((tmp_path / "a").rglob("*.parquet")) == []


def test_local_rows_reader_resumes_only_with_the_same_rows(tmp_path: Path) -> None:
    schema = Unischema("ids", [UnischemaField("id", "int64")])
    footers = set()

    def rows_of(name: str, ids: Iterable[int]) -> LocalRows:
        (tmp_path / name).mkdir()
        spool = Spool(str(tmp_path / name), schema, layout_of(), 0)
        spool.append(encode_batches([pa.record_batch({"id": list(ids)})], schema))
        stored = spool.stored()
        footers.add(stored["files"][0]["file"][2])
        spool.publish([stored], "a test")
        return LocalRows(spool.folder, Shard(0, 1), 10, Parts.of(10, ranks=1).lanes)

    with rows_of("first", range(10)).make_reader() as reader:
        seen = [int(next(reader).id) for _ in range(3)]
        state = reader.state_dict()
    with rows_of("same", range(10)).make_reader() as reader:
        reader.load_state_dict(state)
        assert sorted(seen + [int(row.id) for row in reader]) == list(range(10))
    with rows_of("other", [*range(5, 10), *range(5)]).make_reader() as reader:
        assert len(footers) == 1
        with pytest.raises(
            InvalidArgumentError,
            match=r"the state must belong to the data that is read,.*files were rewritten, added or removed, or it is",
        ):
            reader.load_state_dict(state)


def test_row_exchange_requires_the_secret(tmp_path: Path) -> None:
    giver, taker = spool_of(tmp_path / "a", 0, range(20)), spool_of(tmp_path / "b", 1, range(0))
    move = Move(0, 1, 8)
    listener, port = listening("127.0.0.1", b"secret", visitors=2)
    with listener:
        others = threading.Thread(target=hand_out, args=(listener, giver, [move]))
        others.start()
        with pytest.raises(AuthenticationError, match="digest sent was rejected"):
            list(taken(move, ("127.0.0.1", port), b"a guess", STORED))
        taker.append(taken(move, ("127.0.0.1", port), b"secret", STORED))
        others.join()
    assert (giver.num_rows, taker.num_rows) == (12, 8)
    assert ids_of(taker.take_last(8)) == list(range(12, 20))


def test_row_exchange_names_a_missing_peer(tmp_path: Path) -> None:
    listener, port = listening("127.0.0.1", b"secret", visitors=1)
    listener.close()
    with pytest.raises(WorkerError, match=r"rank 3 failed before it sent 8 rows: \[Errno 111\] Connection refused"):
        list(taken(Move(3, 1, 8), ("127.0.0.1", port), b"secret", pa.schema([])))


def test_row_exchange_names_an_unreachable_host() -> None:
    with pytest.raises(WorkerError, match=r"must be able to listen at '192\.0\.2\.1'"):
        listening("192.0.2.1", b"secret", visitors=1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (
            {"last_batch": "pad"},
            "last_batch must be 'even' or 'drop' .* got 'pad', which would need rows of other ranks",
        ),
        ({"shuffle_row_groups": True}, "shuffle_row_groups must be False .* row groups stay on their hosts"),
        ({"cur_shard": 0}, "each rank already has its rows"),
        ({"filters": [("id", ">", 3)]}, "filter the DataFrame"),
    ],
)
def test_local_rows_reader_raises_for_options_needing_rows_of_other_ranks(options: Any, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        LocalRows("/nowhere", Shard(0, 2), 10, 6).make_reader(**options)
