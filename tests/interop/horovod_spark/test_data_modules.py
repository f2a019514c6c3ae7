"""Tests of data modules for Horovod's Spark estimators; `neighbours/horovod` runs them in real estimators."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import petastore
from petastore import Unischema, UnischemaField
from petastore.codecs import CompressedImageCodec
from petastore.errors import InvalidArgumentError, ReaderClosedError
from petastore.interop.horovod_spark import data_module
from petastore.interop.horovod_spark.torch import PetastoreDataModule

ROWS = 23
SCHEMA = Unischema(
    "digits",
    [
        UnischemaField("id", np.int64),
        UnischemaField("image", np.uint8, (4, 4, 3), CompressedImageCodec("png")),
        UnischemaField("label", np.float32),
    ],
)


@pytest.fixture
def url(tmp_path: Any) -> str:
    target = str(tmp_path / "digits")
    rows = ({"id": i, "image": np.full((4, 4, 3), i, np.uint8), "label": i / 2} for i in range(ROWS))
    petastore.write_dataset(target, SCHEMA, rows, rows_per_row_group=5)
    return target


def told(url: str, rank: int = 0, **other: Any) -> dict[str, Any]:
    """Return the keyword arguments that `horovod.spark.torch` 0.28.1 passes."""
    return {
        "label_cols": ["label"], "continuous_cols": None, "categorical_cols": None, "random_seed": None,
        "train_dir": url, "val_dir": url, "num_train_epochs": 3, "has_val": True, "train_batch_size": 4,
        "val_batch_size": 3, "reader_pool_type": "thread", "train_reader_worker_count": 2,
        "val_reader_worker_count": 2, "transform_fn": None, "inmemory_cache_all": False, "cur_shard": rank,
        "shard_count": 2, "schema_fields": ["image", "id", "label"], "storage_options": None,
        "steps_per_epoch_train": ROWS // 4 // 2, "steps_per_epoch_val": 4, "verbose": 1,
    } | other  # fmt: skip


@pytest.mark.parametrize("in_memory", [False, True])
def test_data_module_epoch_has_disjoint_rows_and_full_batches(url: str, in_memory: bool) -> None:
    epochs: list[list[int]] = [[], [], []]
    for rank in range(2):
        with PetastoreDataModule(**told(url, rank, inmemory_cache_all=in_memory)) as module:
            batches = iter(module.train_data())
            for epoch in epochs:
                for batch in itertools.islice(batches, 2):
                    assert batch["image"].shape == (4, 4, 4, 3)
                    assert (batch["image"][:, 0, 0, 0] == batch["id"]).all()
                    assert batch["label"].float().tolist() == (batch["id"] / 2).tolist()
                    epoch += batch["id"].tolist()
    assert all(len(set(epoch)) == 16 for epoch in epochs)
    assert epochs[0] != epochs[1]
    if in_memory:
        assert sorted(epochs[0]) == sorted(epochs[1])


@pytest.mark.parametrize("in_memory", [False, True])
@pytest.mark.parametrize("batch_size", [2, 3, 11, 12, 23])
def test_data_module_reads_each_validation_row_once(url: str, batch_size: int, in_memory: bool) -> None:
    """The number of steps is Horovod's, also if one row remains for two ranks, as with batch size 11."""
    steps = -(-ROWS // batch_size // 2)
    asked = {"val_batch_size": batch_size, "steps_per_epoch_val": steps, "inmemory_cache_all": in_memory}
    epochs: list[list[int]] = [[], []]
    for rank in range(2):
        with PetastoreDataModule(**told(url, rank, **asked)) as module:
            batches = iter(module.val_data())
            for epoch in epochs:
                for batch in itertools.islice(batches, steps):
                    assert 0 < len(batch["id"]) <= batch_size
                    epoch += batch["id"].tolist()
    assert [sorted(epoch) for epoch in epochs] == [list(range(ROWS))] * 2


def test_data_module_repeats_a_validation_row_to_give_ranks_equal_steps(url: str) -> None:
    seen: list[int] = []
    for rank in range(2):
        with PetastoreDataModule(**told(url, rank, val_batch_size=1, steps_per_epoch_val=12)) as module:
            for batch in itertools.islice(module.val_data(), 12):
                seen += batch["id"].tolist()
    assert set(seen) == set(range(ROWS))
    assert len(seen) == ROWS + 1


def test_data_module_applies_transform_fn(url: str) -> None:
    def brighter(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "image": row["image"].astype(np.float32) / 2}

    with PetastoreDataModule(**told(url, transform_fn=brighter)) as module:
        batch = next(iter(module.train_data()))
    assert batch["image"].dtype == torch.float32
    assert (batch["image"][:, 0, 0, 0] == batch["id"] / 2).all()


def test_data_module_has_no_validation_batches_without_data(url: str) -> None:
    with PetastoreDataModule(**told(url, has_val=False, val_dir=None)) as module:
        assert list(module.val_data()) == []


def test_data_module_converts_lists_of_plain_parquet(tmp_path: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"features": [[float(i)] * 3 for i in range(8)]}), tmp_path / "part-0.parquet")
    one = told(str(tmp_path), schema_fields=["features"], has_val=False, shard_count=1)
    with PetastoreDataModule(**one) as module:
        assert next(iter(module.train_data()))["features"].shape == (4, 3)


def test_data_module_options_are_picklable_and_override(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[petastore.Reader] = []

    def make_reader(*args: Any, **options: Any) -> petastore.Reader:
        opened.append(petastore.make_reader(*args, **options))
        return opened[-1]

    monkeypatch.setattr(data_module, "make_reader", make_reader)
    asked = PetastoreDataModule.with_options(
        shuffle=False, seed=5, validation={"last_batch": "wrap"}, loader={"device": "cpu"}, schema_fields=["id"]
    )
    arrived = pickle.loads(pickle.dumps(asked))  # noqa: S301 - our own bytes
    with arrived(**told(url, shard_count=1)) as module:
        assert next(iter(module.train_data()))["id"].tolist() == [0, 1, 2, 3]
        assert set(next(iter(module.val_data()))) == {"id"}
    train, val = (reader.plan.request for reader in opened)
    assert (train.order.seed, train.last_batch.value, val.last_batch.value) == (5, "drop", "wrap")


def test_data_module_raises_after_its_with_block(url: str) -> None:
    with PetastoreDataModule(**told(url)) as module:
        pass
    with pytest.raises(
        ReaderClosedError, match=r"the data module must be open, got a closed one\. Train inside its with block"
    ):
        module.train_data()


def test_data_module_validation_requires_a_path(url: str) -> None:
    with pytest.raises(InvalidArgumentError, match="val_dir must be given for val data, got None"):
        PetastoreDataModule(**told(url, val_dir=None)).__enter__()


@pytest.mark.tf
@pytest.mark.slow
class TestKeras:
    """Tests with a dataset function like that of Horovod's Keras estimator."""

    @staticmethod
    def make_dataset(reader: Any, batch_size: int, is_batch_reader: bool, shuffle: bool, cache: bool) -> Any:
        from petastorm.tf_utils import make_petastorm_dataset

        dataset = make_petastorm_dataset(reader)
        if is_batch_reader:
            dataset = dataset.unbatch()
        if cache and not shuffle:
            dataset = dataset.cache()
        return dataset.repeat(10**9).batch(batch_size).map(lambda row: (row.image, row.id))

    @pytest.mark.parametrize("transform", [None, lambda row: row])
    def test_data_module_repeats_training_rows_endlessly(
        self, url: str, transform: Callable[[Any], Any] | None
    ) -> None:
        from petastore.interop import petastorm
        from petastore.interop.horovod_spark.keras import PetastoreDataModule as KerasModule

        seen: list[list[int]] = []
        try:
            for rank in range(2):
                asked = told(url, rank, make_dataset=self.make_dataset, transform_fn=transform, shuffle=False)
                with KerasModule(**asked) as module:
                    ids: list[int] = []
                    for images, numbers in module.train_data().take(6):
                        assert (images.numpy()[:, 0, 0, 0] == numbers.numpy()).all()
                        ids += numbers.numpy().tolist()
                    seen.append(ids)
                    assert len(list(module.val_data().take(2))) == 2
        finally:
            petastorm.uninstall()
        first = [ids[: len(set(ids))] for ids in seen]
        assert sorted(first[0] + first[1]) == list(range(ROWS))
        assert [ids[len(own) :] for ids, own in zip(seen, first, strict=True)] == [
            ids[: len(ids) - len(own)] for ids, own in zip(seen, first, strict=True)
        ]

    def test_data_module_rejects_loader_options(self, url: str) -> None:
        from petastore.interop.horovod_spark.keras import PetastoreDataModule as KerasModule

        asked = KerasModule.with_options(shuffle=False, loader={"device": "cpu"})
        with pytest.raises(InvalidArgumentError, match="the estimator makes its own dataset"):
            asked(**told(url))
