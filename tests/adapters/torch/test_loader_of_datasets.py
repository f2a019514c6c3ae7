"""Tests of torch's `DataLoader` on real datasets: all dtypes, zero-copy, nulls, resuming and two real ranks."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import petastore
from petastore.adapters.torch import DataLoader
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.errors import DecodeError, InvalidArgumentError
from petastore.plan.request import LastBatchWord
from tests.warm_interpreters import WarmInterpreter, run_together

ROW_GROUPS = [7, 1, 30, 12, 5, 40, 6]
ROWS = sum(ROW_GROUPS)

FIELDS = [
    petastore.UnischemaField("id", "int32"),
    petastore.UnischemaField("small", "uint16"),
    petastore.UnischemaField("flag", "bool"),
    petastore.UnischemaField("at", "datetime64[us]"),
    petastore.UnischemaField("name", str),
    petastore.UnischemaField("price", Decimal),
    petastore.UnischemaField("age", "int64", nullable=True),
    petastore.UnischemaField("image", "uint8", (4, 6, 3), CompressedImageCodec("png")),
    petastore.UnischemaField("matrix", "float32", (2, 3), NdarrayCodec()),
    petastore.UnischemaField("free", "float64", (None, 2), NdarrayCodec()),
]


def row(i: int) -> dict[str, Any]:
    """Return the row with this id."""
    return {
        "id": i,
        "small": 65_535 - i,
        "flag": i % 2 == 0,
        "at": np.datetime64(i, "s").astype("datetime64[us]"),
        "name": f"n{i}",
        "price": Decimal(i) / 4,
        "age": None if i % 10 == 3 else i,
        "image": np.full((4, 6, 3), i, np.uint8),
        "matrix": np.full((2, 3), i, np.float32),
        "free": np.full((i % 3, 2), i, np.float64),
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write 101 rows in 7 files of one row group each, of different sizes, and return the URL."""
    url = str(tmp_path_factory.mktemp("torch") / "dataset")
    first = 0
    for rows in ROW_GROUPS:
        mode: Any = "append" if first else "error"
        part = [row(i) for i in range(first, first + rows)]
        petastore.write_dataset(url, petastore.Unischema("row", FIELDS), part, mode=mode)
        first += rows
    return url


@pytest.mark.parametrize("make_reader", [petastore.make_reader, petastore.make_batch_reader])
def test_dataloader_converts_every_dtype(url: str, make_reader: Any) -> None:
    wanted = [field.name for field in FIELDS if field.name != "age"]
    with make_reader(url, wanted, shuffle_row_groups=False) as reader:
        batches = list(DataLoader(reader, batch_size=40))
    assert [len(batch["id"]) for batch in batches] == [40, 40, 21]
    batch = batches[1]
    assert list(batch) == wanted
    assert batch["id"].tolist() == list(range(40, 80))
    assert (batch["small"].dtype, batch["small"][0].item()) == (torch.int32, 65_495)
    assert batch["flag"].dtype is torch.bool
    assert (batch["at"].dtype, batch["at"][0].item()) == (torch.int64, 40 * 10**9)
    assert batch["name"][:2] == ["n40", "n41"]
    assert batch["price"][1] == Decimal("10.25")
    assert (batch["image"].shape, batch["image"].dtype) == ((40, 4, 6, 3), torch.uint8)
    assert batch["image"][5].unique().tolist() == [45]
    assert (batch["matrix"].shape, batch["matrix"].dtype) == ((40, 2, 3), torch.float32)
    assert [tuple(value.shape) for value in batch["free"][:3]] == [(1, 2), (2, 2), (0, 2)]


def test_dataloader_tensors_are_zero_copy(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with petastore.make_reader(url, ["id", "image", "matrix"], shuffle_row_groups=False) as reader:
        addresses: list[set[int]] = []
        batches = reader.iter_batches

        def watched(n: int) -> Any:
            for batch in batches(n):
                addresses.append({column.ctypes.data for column in batch.values()})
                yield batch

        monkeypatch.setattr(reader, "iter_batches", watched)
        for number, batch in enumerate(DataLoader(reader, batch_size=10)):
            assert {tensor.data_ptr() for tensor in batch.values()} == addresses[number]
    assert len(addresses) == 11


def test_dataloader_raises_for_nulls_unless_a_transform_fills_them(url: str) -> None:
    with (
        petastore.make_reader(url, ["id", "age"], shuffle_row_groups=False) as reader,
        pytest.raises(DecodeError, match=r"column 'age', row group 0 in .*: nulls= must be set .* values missing\."),
    ):
        list(DataLoader(reader, batch_size=20))

    def fill(values: dict[str, Any]) -> dict[str, Any]:
        return {**values, "age": -1 if values["age"] is None else values["age"]}

    filled = petastore.TransformSpec(fill, edit_fields=[("age", np.int64, (), False)])
    with petastore.make_reader(url, ["id", "age"], transform_spec=filled) as reader:
        ages = torch.cat([batch["age"] for batch in DataLoader(reader, batch_size=20)])
    assert Counter(ages.tolist())[-1] == 10


def test_collate_fn_receives_none_for_missing_values(url: str) -> None:
    with petastore.make_reader(url, ["id", "age"], shuffle_row_groups=False) as reader:
        (rows,) = DataLoader(reader, batch_size=101, collate_fn=list)
    assert [value["age"] for value in rows] == [row(i)["age"] for i in range(101)]


@pytest.mark.parametrize("last_batch", ["even", "drop", "pad", "wrap"])
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_dataloader_len_is_known_before_the_first_read(url: str, last_batch: LastBatchWord, batch_size: int) -> None:
    with petastore.make_reader(
        url, ["id"], cur_shard=1, shard_count=2, last_batch=last_batch, num_epochs=3, seed=5, shuffle_rows=True
    ) as reader:
        loader = DataLoader(reader, batch_size=batch_size)
        length, rows = len(loader), len(loader.dataset)  # type: ignore[arg-type]
        batches = list(loader)
        assert len(batches) == length
        assert sum(len(batch["id"]) for batch in batches) == rows
        assert len(list(loader)) == length
        assert loader.drop_last is (last_batch == "drop")
        assert all(("valid" in batch) is (last_batch == "pad") for batch in batches)


def test_drop_last_is_accepted_with_last_batch_drop(url: str) -> None:
    with petastore.make_reader(url, ["id"], last_batch="drop") as reader:
        loader = DataLoader(reader, batch_size=40, drop_last=True)
        assert [len(batch["id"]) for batch in loader] == [40, 40]


def test_dataloader_stops_its_workers_after_a_break(url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False, num_epochs=None) as reader:
        loader = DataLoader(reader, batch_size=4)
        for _ in range(5):
            for step, batch in enumerate(loader):
                assert batch["id"][0] == 4 * step
                if step == 3:
                    break


def test_dataloader_resumes_from_the_state_after_every_step(url: str) -> None:
    def loader_over(reader: petastore.Reader) -> DataLoader:
        return DataLoader(reader, batch_size=16)

    asked: dict[str, Any] = {"schema_fields": ["id"], "seed": 7, "shuffle_rows": True, "num_epochs": 2}
    states, batches = [], []
    with petastore.make_reader(url, **asked) as reader:
        loader = loader_over(reader)
        for batch in loader:
            batches.append(batch["id"].tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    for step, state in enumerate(states, start=1):
        with petastore.make_reader(url, **asked) as reader:
            loader = loader_over(reader)
            loader.load_state_dict(state)
            assert [batch["id"].tolist() for batch in loader] == batches[step:]


def test_dataloader_shuffles_each_loop_differently(url: str) -> None:
    with petastore.make_reader(url, ["id"], seed=7, shuffle_rows=True) as reader:
        loader = DataLoader(reader, batch_size=16)
        loops = [[row for batch in loader for row in batch["id"].tolist()] for _ in range(3)]
    assert len({tuple(loop) for loop in loops}) == 3
    assert [sorted(loop) for loop in loops] == [sorted(loops[0])] * 3
    with petastore.make_reader(url, ["id"], seed=7, shuffle_rows=True, num_epochs=3) as reader:
        assert [row for batch in DataLoader(reader, batch_size=16) for row in batch["id"].tolist()] == list(
            itertools.chain(*loops)
        )


def test_dataloader_loads_a_state_between_two_loops(url: str) -> None:
    with petastore.make_reader(url, ["id"], shuffle_row_groups=False) as reader:
        loader = DataLoader(reader, batch_size=10)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        next(batches)
        del batches
        loader.load_state_dict(state)
        assert next(iter(loader))["id"].tolist() == list(range(10, 20))
        assert next(iter(loader))["id"].tolist() == list(range(10))


def test_dataloader_resumes_after_reshard(url: str) -> None:
    asked: dict[str, Any] = {"schema_fields": ["id"], "seed": 7, "shuffle_rows": True}
    with petastore.make_reader(url, **asked, cur_shard=0, shard_count=2) as first:
        loader = DataLoader(first, batch_size=10)
        seen = [int(i) for _, batch in zip(range(3), loader, strict=False) for i in batch["id"]]
        first.reshard(0, 1)
        rest = [int(i) for batch in loader for i in batch["id"]]
    assert len(set(seen)) == 30
    assert len(set(rest)) == ROWS - 60
    assert not set(seen) & set(rest)


RANK = """
import gc, json, sys
import torch, torch.distributed as dist
from petastore import make_reader
from petastore.adapters.torch import DataLoader

url, rank, store = sys.argv[1], int(sys.argv[2]), sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
seen = {}
for last_batch in ("even", "drop", "pad", "wrap"):
    for batch_size in (1, 3, 16, 64):
        asked = {"cur_shard": rank, "shard_count": 2, "last_batch": last_batch, "seed": 3, "shuffle_rows": True}
        with make_reader(url, ["id"], **asked) as reader:
            loader = DataLoader(reader, batch_size=batch_size)
            steps, ids = 0, []
            for batch in loader:
                # Gradients are averaged over both ranks: a rank with another number of batches would hang here.
                model(batch["id"].float().unsqueeze(1)).sum().backward()
                steps += 1
                valid = batch.get("valid", torch.ones(len(batch["id"]), dtype=torch.bool))
                ids += batch["id"][valid].tolist()
            assert steps == len(loader)
            seen[f"{last_batch} {batch_size}"] = [steps, ids]
del model
gc.collect()  # gloo's threads end with the last reference to the group, and have to end before Python does
dist.destroy_process_group()
print(json.dumps(seen))
"""


def test_dataloaders_of_two_ranks_have_equal_steps_and_every_row(
    url: str, tmp_path: Path, warm_torch: WarmInterpreter
) -> None:
    ranks = [warm_torch.start(RANK, url, rank, tmp_path / "store") for rank in range(2)]
    first, second = (json.loads(printed) for printed, _ in run_together(ranks))
    assert len(first) == 16
    for case, (steps, ids) in first.items():
        last_batch, batch_size = case.split()
        global_batch = 2 * int(batch_size)
        full = ROWS // global_batch
        other_steps, other_ids = second[case]
        assert steps == other_steps, case
        both = Counter(ids + other_ids)
        if last_batch in ("even", "pad"):
            assert both == Counter(range(ROWS)), case
        elif last_batch == "drop":
            assert steps == full, case
            assert set(both.values()) == ({1} if full else set()), case
            assert both.total() == full * global_batch, case
        else:
            assert set(both) == set(range(ROWS)), case
            assert both.total() == steps * global_batch, case


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_dataloader_over_a_reader_raises(url: str, num_workers: int) -> None:
    with petastore.make_reader(url, ["id"]) as reader:
        loader: Any = torch.utils.data.DataLoader(reader, batch_size=4, num_workers=num_workers)  # type: ignore[arg-type]
        with pytest.raises(
            InvalidArgumentError,
            match=r"a reader cannot be indexed.*For torch write petastore\.adapters\.torch\.DataLoader",
        ):
            next(iter(loader))
