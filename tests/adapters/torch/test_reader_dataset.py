"""Tests of `ReaderDataset` in torch's DataLoader: each row once, one worker per row group, equal steps."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from pyarrow.fs import LocalFileSystem
from torch.utils.data import DataLoader

import petastore
import petastore.adapters.torch
from petastore.adapters.torch import MapDataset, ReaderDataset, decimal_friendly_collate
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError, NoDataAvailableError
from petastore.plan.request import LastBatchWord
from petastore.predicates import in_lambda
from tests.adapters.counted import counted
from tests.tier import sized

# More workers than CPUs are slow, but correct.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

ROWS, PER_ROW_GROUP = 503, 5
GROUPS = -(-ROWS // PER_ROW_GROUP)
FIELDS = [
    petastore.UnischemaField("id", "int32"),
    petastore.UnischemaField("image", "uint8", (4, 6, 3), CompressedImageCodec("png")),
    petastore.UnischemaField("name", str),
    petastore.UnischemaField("price", Decimal),
    petastore.UnischemaField("free", "float64", (None, 2), NdarrayCodec()),
    petastore.UnischemaField("age", "float32", nullable=True),
]
WHOLE = ["id", "image", "name", "price", "free"]


def row(i: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {
        "id": i,
        "image": np.full((4, 6, 3), i % 256, np.uint8),
        "name": f"n{i}",
        "price": Decimal(i) / 4,
        "free": np.full((i % 3, 2), i, np.float64),
        "age": None if i % 10 == 3 else i,
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("reader") / "dataset")
    rows = (row(i) for i in range(ROWS))
    petastore.write_dataset(url, petastore.Unischema("row", FIELDS), rows, rows_per_row_group=PER_ROW_GROUP)
    return url


def lists(batches: Any) -> list[list[int]]:
    """Return the ids of each batch."""
    return [batch["id"].tolist() for batch in batches]


def ids(batches: Any) -> list[int]:
    return sorted(i for batch in lists(batches) for i in batch)


@pytest.mark.parametrize("shuffle_rows", [False, True])
@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_reader_dataset_workers_rarely_read_a_row_group_twice(
    url: str, tmp_path: Path, num_workers: int, shuffle_rows: bool
) -> None:
    dataset = counted(petastore.open_dataset(url), tmp_path / "reads")
    # A shuffle buffer of about ten row groups.
    memory = int(dataset.inventory.decoded_bytes.sum()) // 10
    rows = ReaderDataset(dataset, ["id"], batch_size=16, shuffle_rows=shuffle_rows, seed=3, shuffle_buffer_bytes=memory)
    loader = DataLoader(rows, batch_size=None, num_workers=num_workers)
    batches = lists(loader)
    assert len(batches) == len(loader) == -(-ROWS // 16)
    assert sorted(i for batch in batches for i in batch) == list(range(ROWS))
    assert dataset.reads().total() <= 1.2 * GROUPS
    rows.set_epoch(0)
    assert lists(loader) == batches


def test_reader_dataset_sends_every_dtype_from_workers(url: str) -> None:
    loader = DataLoader(ReaderDataset(url, WHOLE, batch_size=100, seed=0), batch_size=None, num_workers=2)
    batches = list(loader)
    assert ids(batches) == list(range(ROWS))
    for batch in batches:
        assert list(batch) == WHOLE
        assert batch["image"].is_shared()
        for place, i in enumerate(batch["id"].tolist()):
            wanted = row(i)
            assert batch["image"][place].unique().tolist() == [i % 256]
            assert (batch["name"][place], batch["price"][place]) == (wanted["name"], wanted["price"])
            assert np.array_equal(batch["free"][place].numpy(), wanted["free"])


def test_reader_dataset_equals_dataloader_without_workers(url: str) -> None:
    asked: dict[str, Any] = {"schema_fields": ["id"], "shuffle_rows": True, "seed": 5, "num_epochs": 2}
    with petastore.make_reader(url, **asked, cur_shard=1, shard_count=3) as reader:
        wanted = lists(petastore.adapters.torch.DataLoader(reader, batch_size=20))
    rows = ReaderDataset(url, **asked, batch_size=20, cur_shard=1, shard_count=3, interleave=None)
    for num_workers in (0, 1):
        rows.set_epoch(0)
        assert [sorted(one) for one in lists(DataLoader(rows, batch_size=None, num_workers=num_workers))] == [
            sorted(one) for one in wanted
        ]


@pytest.mark.slow
def test_reader_dataset_works_with_spawned_workers(url: str) -> None:
    rows = ReaderDataset(url, ["id", "name"], batch_size=50)
    # Each worker imports torch, which takes three seconds of CPU time.
    loader = DataLoader(rows, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert ids(loader) == list(range(ROWS))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reader_dataset_rows_are_batched_by_torch(url: str, num_workers: int) -> None:
    rows = ReaderDataset(url, ["id", "image", "name"])
    loader = DataLoader(rows, batch_size=50, num_workers=num_workers)
    batches = list(loader)
    assert ids(batches) == list(range(ROWS))
    assert batches[0]["image"].shape == (50, 4, 6, 3)
    assert isinstance(batches[0]["name"], list)
    everything = DataLoader(ReaderDataset(url), batch_size=50, num_workers=num_workers, collate_fn=list)
    assert sorted(int(one["id"]) for batch in everything for one in batch if one["age"] is None) == [
        *range(3, ROWS, 10)
    ]
    ours = DataLoader(ReaderDataset(url, WHOLE), batch_size=50, collate_fn=decimal_friendly_collate)
    assert ids(ours) == list(range(ROWS))


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_reader_dataset_ranks_have_equal_batches_with_every_last_batch(
    url: str, last_batch: LastBatchWord, num_workers: int
) -> None:
    seen = Counter[int]()
    lengths = set()
    for rank in range(3):
        rows = ReaderDataset(
            url, ["id"], batch_size=16, last_batch=last_batch, cur_shard=rank, shard_count=3, num_epochs=2
        )
        loader = DataLoader(rows, batch_size=None, num_workers=num_workers)
        batches = list(loader)
        lengths |= {len(batches), len(loader)}
        for batch in batches:
            seen.update(batch["id"][batch["valid"]].tolist() if last_batch == "pad" else batch["id"].tolist())
    assert len(lengths) == 1
    if last_batch in ("even", "pad"):
        assert seen == Counter([*range(ROWS)] * 2)
    elif last_batch == "drop":
        assert seen.total() == 2 * (ROWS // 48) * 48
    else:
        assert set(seen) == set(range(ROWS))
        assert seen.total() == 2 * -(-ROWS // 48) * 48


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reader_dataset_ranks_share_filtered_rows(url: str, tmp_path: Path, num_workers: int) -> None:
    def is_even(number: Any) -> bool:
        return bool(number % 2 == 0)

    seen = []
    for rank in range(2):
        rows = ReaderDataset(
            url, ["id"], batch_size=16, cur_shard=rank, shard_count=2, seed=1,
            filters=petastore.col("id") < 200, predicate=in_lambda(["id"], is_even), filter_cache=tmp_path,
        )  # fmt: skip
        assert rows.plan.rows_per_epoch(1) == 50
        seen += ids(DataLoader(rows, batch_size=None, num_workers=num_workers))
    assert sorted(seen) == list(range(0, 200, 2))
    assert list(tmp_path.rglob("*")), "nothing was remembered"


def test_reader_dataset_conflicting_row_options_raise_before_reading(url: str, tmp_path: Path) -> None:
    selection = petastore.select_rows(petastore.open_dataset(url), filters=[("id", "<", 9)], filter_cache=False)
    for kind in (ReaderDataset, MapDataset):
        with pytest.raises(
            InvalidArgumentError,
            match=r"selection must be given without other arguments that select rows, got ",
        ):
            kind(url, selection=selection, filters=[("id", "<", 5)])
        dataset = counted(petastore.open_dataset(url), tmp_path / kind.__name__)
        with pytest.raises(
            InvalidArgumentError,
            match=r"schema_fields must match fields of.*\('id', 'image', 'name', 'price', 'free', 'age'\), got",
        ):
            kind(dataset, ["nothing"], filters=[("id", "<", 5)], filter_cache=False)
        assert dataset.reads().total() == 0


def _opened_by(rows: ReaderDataset | MapDataset) -> petastore.Dataset:
    return rows.dataset if isinstance(rows, ReaderDataset) else rows.rows.dataset


def test_torch_datasets_raise_for_storage_options_with_an_open_dataset(url: str) -> None:
    dataset = petastore.open_dataset(url)
    asked: list[dict[str, Any]] = [
        {"storage_options": {}}, {"filesystem": LocalFileSystem()}, {"storage_timeout": 3},
    ]  # fmt: skip
    for one in asked:
        for kind in (ReaderDataset, MapDataset):
            with pytest.raises(
                InvalidArgumentError,
                match=r"filesystem, storage_timeout and schema must be left out with an open Dataset\. Pass",
            ):
                kind(dataset, **one)
    for kind in (ReaderDataset, MapDataset):
        assert _opened_by(kind(url, storage_timeout=None)).location.timeout_s is None
        assert _opened_by(kind(url, storage_timeout=7)).location.timeout_s == 7


def test_reader_dataset_raises_when_single_rows_do_not_divide(url: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match="batch_size must be given where 503 rows do not divide equally among 2 ranks: a rank with one",
    ):
        ReaderDataset(url, cur_shard=0, shard_count=2)
    tails: list[tuple[LastBatchWord, int]] = [("drop", 251), ("wrap", 252)]
    for last_batch, each in tails:
        for rank in range(2):
            rows = ReaderDataset(url, ["id"], cur_shard=rank, shard_count=2, last_batch=last_batch)
            batches = lists(DataLoader(rows, batch_size=10, num_workers=2))
            assert sum(map(len, batches)) == len(rows) == each


def test_reader_dataset_works_with_more_workers_than_rows(tmp_path: Path) -> None:
    url = str(tmp_path / "few")
    schema = petastore.Unischema("few", [petastore.UnischemaField("id", "int32")])
    petastore.write_dataset(url, schema, [{"id": i} for i in range(2)])
    loader = DataLoader(ReaderDataset(url, batch_size=1), batch_size=None, num_workers=3)
    assert (ids(loader), len(loader)) == ([0, 1], 2)
    petastore.write_dataset(url, schema, [], mode="overwrite")
    loader = DataLoader(ReaderDataset(url, batch_size=1), batch_size=None, num_workers=2)
    assert (lists(loader), len(loader)) == ([], 0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_reader_dataset_loop_shuffles_each_epoch_differently(url: str, num_workers: int) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=16, shuffle_rows=True, seed=1, num_epochs=3)
    loader = DataLoader(rows, batch_size=None, num_workers=num_workers)
    batches = lists(loader)
    steps = -(-ROWS // 16)
    epochs = [batches[first : first + steps] for first in range(0, 3 * steps, steps)]
    assert len(batches) == len(loader) == 3 * steps
    for epoch in epochs:
        assert sorted(i for batch in epoch for i in batch) == list(range(ROWS))
    assert epochs[0] != epochs[1] != epochs[2]


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_set_epoch_reaches_persistent_workers(url: str, num_workers: int, persistent: bool) -> None:
    if persistent and not num_workers:
        persistent = False
    rows = ReaderDataset(url, ["id"], batch_size=50, shuffle_rows=True, seed=1)
    loader = DataLoader(rows, batch_size=None, num_workers=num_workers, persistent_workers=persistent)
    seen: dict[int, list[list[int]]] = {}
    for epoch in (0, 1, 0):
        rows.set_epoch(epoch)
        batches = lists(loader)
        assert seen.setdefault(epoch, batches) == batches
    assert seen[0] != seen[1]


@pytest.mark.parametrize("given", [0, 3])
def test_set_epoch_after_iter_chooses_the_epoch_of_this_loop(url: str, given: int) -> None:
    """Lightning begins a loop before it sets the epoch."""

    def fresh() -> ReaderDataset:
        return ReaderDataset(url, ["id"], batch_size=50, shuffle_rows=True, seed=1)

    rows = fresh()
    rows.set_epoch(1)
    second, state = lists(rows), rows.state_after(given, num_workers=0)
    rows = fresh()
    if given:
        rows.load_state_dict(state)
    loop = iter(DataLoader(rows, batch_size=None))
    rows.set_epoch(1)
    batches = [next(loop)["id"].tolist()]
    assert rows.state_dict() == rows.state_after(1, num_workers=0)
    assert batches + lists(loop) == second[given:]


def test_reader_dataset_has_no_length_when_endless(url: str) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=100, num_epochs=None)
    loader = DataLoader(rows, batch_size=None, num_workers=2)
    with pytest.raises(TypeError, match="endless"):
        len(loader)
    counts = Counter(i for _, batch in zip(range(12), loader, strict=False) for i in batch["id"].tolist())
    assert set(counts) == set(range(ROWS))


def test_second_loop_without_set_epoch_warns(url: str) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=100, shuffle_rows=True, seed=3)
    first = lists(rows)
    with pytest.warns(UserWarning, match=r"same order as the last one.*dataset.set_epoch\(epoch\) before each for"):
        assert lists(rows) == first
    assert lists(rows) == first  # it warns only once
    rows.set_epoch(1)
    assert lists(rows) != first
    in_order = ReaderDataset(url, ["id"], batch_size=100, shuffle_row_groups=False)
    assert lists(in_order) == lists(in_order)


@pytest.mark.slow  # torch waits ten seconds for workers of an abandoned loop
def test_second_loop_without_set_epoch_warns_in_workers(url: str) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=100, seed=3)
    loader = DataLoader(rows, batch_size=None, num_workers=2)
    list(loader)
    with pytest.raises(UserWarning, match=r"(?s)worker process 0.*same order as the last one"):  # by filterwarnings
        list(loader)


def test_reader_dataset_closes_its_reader_after_a_break(url: str) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=10)
    for num_workers in (0, 2):
        rows.set_epoch(0)
        for batch in DataLoader(rows, batch_size=None, num_workers=num_workers):
            assert len(batch["id"]) == 10
            break


@pytest.mark.slow  # torch waits five seconds for the worker
def test_error_in_a_worker_is_reported(tmp_path: Path) -> None:
    ages = pa.table({"age": [1.0, None]})
    pq.write_table(ages, tmp_path / "a.parquet", write_statistics=False)  # else the main process would raise
    rows = ReaderDataset(str(tmp_path), ["age"], batch_size=100)
    with pytest.raises(DecodeError, match="column 'age'"):
        list(DataLoader(rows, batch_size=None, num_workers=1))


def test_reader_dataset_applies_transform_and_selection(url: str) -> None:
    dataset = petastore.open_dataset(url)
    selection = petastore.select_rows(dataset, filters=[("id", ">=", 400)], filter_cache=False)
    spec = petastore.TransformSpec(
        lambda values: {"id": values["id"] - 400, "worker": os.getpid()},
        edit_fields=[("worker", np.int64, (), False)],
    )
    rows = ReaderDataset(dataset, ["id"], batch_size=10, selection=selection, transform_spec=spec, workers_count=2)
    assert list(rows.schema.fields) == ["id", "worker"]
    batches = list(DataLoader(rows, batch_size=None, num_workers=2))
    assert ids(batches) == list(range(103))
    workers = {worker for batch in batches for worker in batch["worker"].tolist()}
    assert len(workers) == 2
    assert os.getpid() not in workers


def test_reader_dataset_resumes_from_the_state_after_every_batch(url: str) -> None:
    def fresh() -> ReaderDataset:
        return ReaderDataset(url, ["id"], batch_size=60, shuffle_rows=True, seed=2, num_epochs=2)

    rows, batches, states = fresh(), [], []
    for batch in rows:
        batches.append(batch["id"].tolist())
        states.append(json.loads(json.dumps(rows.state_dict())))
    for step, state in list(enumerate(states, start=1))[:: sized(full=2, quick=5)]:
        assert fresh().state_after(step, num_workers=0) == state
        again = fresh()
        again.load_state_dict(state)
        assert lists(again) == batches[step:]
        again.set_epoch(0)
        assert lists(again) == batches  # the next loop reads a whole epoch
        with petastore.make_reader(url, ["id"], shuffle_rows=True, seed=2, num_epochs=2) as reader:
            reader.load_state_dict(state)
            assert lists(reader.iter_batches(60)) == batches[step:]


def test_reader_dataset_resumes_with_another_number_of_workers(url: str) -> None:
    asked: dict[str, Any] = {"schema_fields": ["id"], "shuffle_rows": True, "seed": 2}
    rows = ReaderDataset(url, batch_size=10, **asked)
    taken = [batch for _, batch in zip(range(6), DataLoader(rows, batch_size=None, num_workers=2), strict=False)]
    state = rows.state_after(6, num_workers=2)
    with pytest.raises(
        InvalidArgumentError,
        match=r"batches must be a multiple of num_workers \(2\) or the number at the end of an epoch, got 7: ",
    ):
        rows.state_after(7, num_workers=2)
    rest = []
    for rank in range(2):
        other = ReaderDataset(url, batch_size=7, **asked, cur_shard=rank, shard_count=2)
        other.load_state_dict(state)
        other.set_epoch(0)  # as training loops do
        rest += list(DataLoader(other, batch_size=None, num_workers=2))
    assert ids(taken + rest) == list(range(ROWS))
    other.set_epoch(1)
    assert len(list(DataLoader(other, batch_size=None, num_workers=2))) == len(other)


def test_reader_dataset_resumes_when_epochs_are_counted_from_0(url: str) -> None:
    def fresh() -> ReaderDataset:
        return ReaderDataset(url, ["id"], batch_size=10, shuffle_rows=True, seed=2)

    def epoch(rows: ReaderDataset, number: int) -> list[list[int]]:
        rows.set_epoch(number)
        return [batch["id"].tolist() for batch in DataLoader(rows, batch_size=None, num_workers=2)]

    second, third = epoch(fresh(), 1), epoch(fresh(), 2)
    rows = fresh()
    rows.set_epoch(1)
    state = rows.state_after(6, num_workers=2)
    again = fresh()
    again.load_state_dict(state)
    assert epoch(again, 0) == second[6:]
    assert epoch(again, 1) == third
    again = fresh()
    again.load_state_dict(state)
    with pytest.warns(UserWarning, match=r"set_epoch\(3\) .* state of epoch 1 was loaded"):
        assert epoch(again, 3) == second[6:]
    assert epoch(again, 4) == third


def test_reader_dataset_state_raises_in_the_main_process_with_workers(url: str) -> None:
    rows = ReaderDataset(url, ["id"], batch_size=10)
    list(DataLoader(rows, batch_size=None, num_workers=1))
    with pytest.raises(
        InvalidArgumentError, match="must be called in the process that iterates the dataset, got another process"
    ):
        rows.state_dict()


class _Telling(ReaderDataset):
    """Dataset whose batches contain the state of their worker."""

    def __iter__(self) -> Any:
        return ({**batch, "state": json.dumps(self.state_dict())} for batch in super().__iter__())


class _Going(ReaderDataset):
    """Dataset in which each worker resumes from its own state, like in torchdata's StatefulDataLoader."""

    states: list[str]

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        self.load_state_dict(json.loads(self.states[info.id]))
        return super().__iter__()


@pytest.mark.parametrize("taken", [2, 9, *(pytest.param(taken, marks=pytest.mark.slow) for taken in (3, 10, 50)), 51])
def test_reader_dataset_worker_resumes_from_its_own_state(url: str, taken: int) -> None:
    asked: dict[str, Any] = {"schema_fields": ["id"], "batch_size": 10, "shuffle_rows": True, "seed": 2}
    loader = DataLoader(_Telling(url, **asked), batch_size=None, num_workers=2)
    batches = [batch for _, batch in zip(range(taken), loader, strict=False)]
    latest = {number % 2: batch["state"] for number, batch in enumerate(batches)}
    going = _Going(url, **asked)
    going.states = [latest[0], latest[1]]
    rest = list(DataLoader(going, batch_size=None, num_workers=2))
    assert ids(batches + rest) == list(range(ROWS))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch_size": 0}, "batch_size must be an int of at least 1, got 0"),
        ({"workers_count": 0}, "workers_count must be an int of at least 1, got 0"),
        (
            {"cur_shard": 1},
            r"cur_shard and shard_count must be given together, got cur_shard=1 and shard_count=None\. Give",
        ),
        (
            {"schema_fields": ["nothing"]},
            r"schema_fields must match fields of.*\('id', 'image', 'name', 'price', 'free', 'age'\), got",
        ),
        ({"last_batch": "best"}, "last_batch must be one of 'even', 'drop', 'pad', 'wrap', got 'best'"),
        ({"num_epochs": 0}, "num_epochs must be an int of at least 1, got 0"),
    ],
)
def test_reader_dataset_invalid_options_raise_at_the_call(url: str, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        ReaderDataset(url, **asked)


def test_fewer_rows_than_ranks_raise_on_every_rank(url: str) -> None:
    with pytest.raises(NoDataAvailableError):
        ReaderDataset(url, batch_size=1, cur_shard=0, shard_count=ROWS + 1)


def test_reader_dataset_workers_return_rows_of_large_row_groups_once(tmp_path: Path) -> None:
    """The lanes of two workers share row groups, and each worker copies contiguous runs of rows."""
    schema = petastore.Unischema(
        "s", [petastore.UnischemaField("id", "int64"), petastore.UnischemaField("word", "str")]
    )
    rows = ({"id": number, "word": f"w{number}"} for number in range(4150))
    petastore.write_dataset(tmp_path / "s", schema, rows, rows_per_row_group=900)
    dataset = ReaderDataset(
        tmp_path / "s", shuffle_rows=True, interleave=12, shuffle_block_rows=1, seed=3, batch_size=100
    )
    seen: list[int] = []
    for batch in DataLoader(dataset, batch_size=None, num_workers=2):
        numbers = batch["id"].tolist()
        assert batch["word"] == [f"w{number}" for number in numbers]
        seen += numbers
    assert sorted(seen) == list(range(4150))


class _Counted(MemoryFileSystem):  # type: ignore[misc] # fsspec has no types
    """In-memory filesystem, inherited by workers, that counts the bytes that all processes read."""

    cachable = False
    fetched: torch.Tensor

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Any:
        content = super().cat_file(path, start=start, end=end, **options)
        type(self).fetched += len(content)
        return content


@pytest.mark.parametrize(
    ("files", "row_groups", "rows", "batch_size", "options"),
    [
        pytest.param(6, 20, 10_000, 1000, {"interleave": 12}, id="few lanes", marks=pytest.mark.slow),
        pytest.param(20, 4, 20_000, 3000, {}, id="80 row groups of 160 KB"),
        pytest.param(
            10,
            8,
            60_000,
            7000,
            {"last_batch": "pad", "cur_shard": 1, "shard_count": 2},
            id="one of two ranks, 480 KB",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_reader_dataset_fetches_each_row_group_in_one_worker(
    files: int, row_groups: int, rows: int, batch_size: int, options: dict[str, Any]
) -> None:
    _Counted.fetched = torch.zeros(1, dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]
    store = _Counted()
    rng = np.random.default_rng(0)
    for number in range(files):
        content = io.BytesIO()
        columns = pa.table({"id": rng.integers(0, 2**62, rows * row_groups)})
        pq.write_table(columns, content, row_group_size=rows, compression="none", use_dictionary=False)
        store.pipe_file(f"/counted/{number:02}.parquet", content.getvalue())
    fetched = {}
    for num_workers in (1, 2, 4):
        dataset = ReaderDataset(
            "/counted", batch_size=batch_size, shuffle_rows=True, seed=1, filesystem=store, **options
        )
        before = int(store.fetched)
        loader = DataLoader(dataset, batch_size=None, num_workers=num_workers)
        assert sum(len(batch["id"]) for batch in loader) >= files * row_groups * rows // options.get("shard_count", 1)
        fetched[num_workers] = int(store.fetched) - before
        assert not list(Path(tempfile.gettempdir()).glob(f"petastore-workers-{os.getpid()}-*"))
    stored = store.du("/counted") // options.get("shard_count", 1)
    store.rm("/counted", recursive=True)
    del _Counted.fetched
    assert stored <= 1.02 * min(fetched.values())
    assert max(fetched.values()) <= 1.05 * stored
