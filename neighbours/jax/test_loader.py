"""Tests of the JAX loader in one process, over real datasets."""

from __future__ import annotations

import collections
from decimal import Decimal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from petastore import Unischema, UnischemaField, make_reader, write_dataset
from petastore.adapters.jax import DataLoader, jax_all_gather
from petastore.errors import DecodeError, InvalidArgumentError, ReaderClosedError

ROWS = 101
SCHEMA = Unischema(
    "Mixed",
    [
        UnischemaField("id", np.int64),
        UnischemaField("x", np.float64, (2,)),
        UnischemaField("half", np.float16),
        UnischemaField("is_even", np.bool_),
        UnischemaField("name", str),
        UnischemaField("price", Decimal),
        UnischemaField("track", np.float32, (None,)),
        UnischemaField("age", np.int32, nullable=True),
    ],
)


def row(i: int) -> dict[str, Any]:
    return {
        "id": i,
        "x": np.array([i, -i], np.float64),
        "half": np.float16(i),
        "is_even": i % 2 == 0,
        "name": f"n{i}",
        "price": Decimal(i),
        "track": np.full(i % 3, i, np.float32),
        "age": None if i % 10 == 0 else i,
    }


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    where = str(tmp_path_factory.mktemp("data") / "mixed")
    write_dataset(where, SCHEMA, [row(i) for i in range(ROWS)], rows_per_row_group=13)
    return where


def over_rows() -> Any:
    return jax.sharding.NamedSharding(jax.sharding.Mesh(jax.devices(), ("data",)), jax.sharding.PartitionSpec("data"))


def test_jax_batch_is_a_pytree_on_the_device(url: str) -> None:
    with make_reader(url, shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=11, nulls={"age": "mask"})))
    arrays = {name: column for name, column in batch.items() if isinstance(column, jax.Array)}
    assert {name: str(column.dtype) for name, column in arrays.items()} == {
        "id": "int32",
        "x": "float32",
        "half": "float16",
        "is_even": "bool",
        "age": "int32",
        "age_valid": "bool",
    }
    doubled = jax.jit(lambda arrays: jax.tree.map(lambda column: column * 2, arrays))(arrays)
    assert doubled["x"].tolist() == [[2 * i, -2 * i] for i in range(11)]
    assert batch["age"].tolist() == [0, *range(1, 10), 0]
    assert batch["name"] == [f"n{i}" for i in range(11)]
    assert batch["price"] == [Decimal(i) for i in range(11)]
    assert [cell.tolist() for cell in batch["track"]] == [[float(i)] * (i % 3) for i in range(11)]


def test_jax_padded_columns_have_lengths(url: str) -> None:
    with make_reader(url, ["track"], shuffle_row_groups=False) as reader:
        batch = next(iter(DataLoader(reader, batch_size=3, ragged="padded")))
    assert batch["track"].tolist() == [[0, 0], [1, 0], [2, 2]]
    assert batch["track_lengths"].tolist() == [0, 1, 2]


def test_jax_loader_rejects_missing_values_without_nulls(url: str) -> None:
    with make_reader(url, ["age"]) as reader, pytest.raises(DecodeError, match="column 'age'"):
        list(DataLoader(reader, batch_size=20))


def test_jax_64_bit_integers_are_narrowed_only_if_exact(tmp_path: Path) -> None:
    schema = Unischema("Large", [UnischemaField("n", np.int64), UnischemaField("m", np.uint64)])
    write_dataset(str(tmp_path / "d"), schema, [{"n": 2**31 - 1, "m": 2**32 - 1}, {"n": -(2**31) - 1, "m": 2**40}])
    assert int(jax.device_put(np.array([2**40 + 5]))[0]) == 5  # JAX truncates silently
    for name in ("n", "m"):
        with make_reader(str(tmp_path / "d"), [name], shuffle_row_groups=False) as reader:
            batches = iter(DataLoader(reader, batch_size=1))
            assert int(next(batches)[name][0]) == {"n": 2**31 - 1, "m": 2**32 - 1}[name]
            with pytest.raises(DecodeError, match=f"column '{name}'.*jax_enable_x64"):
                next(batches)
    with jax.enable_x64(True), make_reader(str(tmp_path / "d"), shuffle_row_groups=False) as reader:
        (batch,) = DataLoader(reader, batch_size=2)
        assert (batch["n"].dtype, batch["n"].tolist()) == (jnp.int64, [2**31 - 1, -(2**31) - 1])
        assert (batch["m"].dtype, batch["m"].tolist()) == (jnp.uint64, [2**32 - 1, 2**40])


def test_jax_loader_rejects_numbers_out_of_float32_range(tmp_path: Path) -> None:
    schema = Unischema("Wide", [UnischemaField("x", np.float64)])
    write_dataset(str(tmp_path / "d"), schema, [{"x": value} for value in (0.1, np.inf, 1e300)])
    with make_reader(str(tmp_path / "d"), shuffle_row_groups=False) as reader:
        batches = iter(DataLoader(reader, batch_size=2))
        assert next(batches)["x"].tolist() == [float(np.float32(0.1)), np.inf]
        with pytest.raises(DecodeError, match=r"must fit into float32, .*, got 1e\+300"):
            next(batches)


def test_jax_times_need_enable_x64(tmp_path: Path) -> None:
    schema = Unischema("Times", [UnischemaField("at", np.dtype("datetime64[s]"))])
    write_dataset(str(tmp_path / "d"), schema, [{"at": np.datetime64("2020-01-01", "s")}])
    with make_reader(str(tmp_path / "d")) as reader:
        with pytest.raises(InvalidArgumentError, match=r"column 'at'.*jax_enable_x64"):
            DataLoader(reader, batch_size=1)
        with jax.enable_x64(True):
            (batch,) = DataLoader(reader, batch_size=1)
            assert batch["at"].tolist() == [1_577_836_800 * 10**9]


@pytest.mark.parametrize("received", [1, 3, 5, 6, 8])
def test_jax_loader_resumes_after_the_last_returned_batch(url: str, received: int) -> None:
    asked: Any = {"shuffle_rows": True, "seed": 4, "num_epochs": 2}
    with make_reader(url, ["id"], **asked) as reader:
        loader = DataLoader(reader, batch_size=20)
        batches = iter(loader)
        seen = [i for _ in range(received) for i in next(batches)["id"].tolist()]
        state = loader.state_dict()
    with make_reader(url, ["id"], **asked) as reader:
        loader = DataLoader(reader, batch_size=20)
        loader.load_state_dict(state)
        seen += [i for batch in loader for i in batch["id"].tolist()]
    assert collections.Counter(seen) == dict.fromkeys(range(ROWS), 2)


def test_jax_loader_len_counts_remaining_batches_after_a_resume(url: str) -> None:
    with make_reader(url, ["id"], shuffle_rows=True, seed=4) as reader:
        loader = DataLoader(reader, batch_size=20)
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
        assert len(loader) == 6
        rest = [batch["id"].tolist() for batch in batches]
        for _ in range(2):
            batches = iter(loader)
            loader.load_state_dict(state)  # loaded in a running loop, and then once more
            assert len(loader) == 4
            assert [batch["id"].tolist() for batch in batches] == rest
            assert len(loader) == len(list(loader)) == 6


def test_jax_loop_raises_when_a_state_is_loaded_in_it(url: str) -> None:
    with make_reader(url, ["id"]) as reader:
        loader = DataLoader(reader, batch_size=20)
        batches = iter(loader)
        next(batches)
        loader.load_state_dict(loader.state_dict())
        for _ in range(2):
            with pytest.raises(ReaderClosedError, match="load_state_dict, reset or reshard of its reader was called"):
                next(batches)
        assert len(list(loader)) == 5


def test_jax_loader_accepts_a_device_or_a_local_mesh(url: str) -> None:
    with make_reader(url, ["id"], last_batch="drop") as reader:
        for sharding in (jax.devices()[0], over_rows()):
            loader = DataLoader(reader, batch_size=20, sharding=sharding)
            assert [batch["id"].shape for batch in loader] == [(20,)] * len(loader)
            assert len(loader) == 5


def test_jax_loader_rejects_columns_that_devices_cannot_hold(url: str) -> None:
    with make_reader(url, ["id"]) as reader:
        with pytest.raises(InvalidArgumentError, match="NamedSharding"):
            DataLoader(reader, batch_size=20, sharding="data")
        with pytest.raises(InvalidArgumentError, match="batch_size"):
            DataLoader(reader, batch_size=0)
    with make_reader(url, ["id"], num_epochs=None) as reader, pytest.raises(TypeError, match="endless"):
        len(DataLoader(reader, batch_size=1))


def test_jax_all_gather_works_in_a_single_process(url: str) -> None:
    with make_reader(url) as reader:
        reader.plan.assert_agreed(jax_all_gather)
