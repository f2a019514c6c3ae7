"""Tests of data modules for estimators that are older than current Keras and Lightning: called as they call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from neighbours.conftest import UNEVEN

ROWS = sum(UNEVEN)


def told(url: str, rank: int, **other: Any) -> dict[str, Any]:
    """Return the arguments that both estimators pass."""
    return {
        "train_dir": url, "val_dir": url, "num_train_epochs": 2, "has_val": True, "train_batch_size": 16,
        "val_batch_size": 16, "reader_pool_type": "thread", "inmemory_cache_all": False, "cur_shard": rank,
        "shard_count": 2, "schema_fields": ["id", "x", "y"], "storage_options": None, "verbose": 0,
        "steps_per_epoch_train": ROWS // 32, "steps_per_epoch_val": -(-ROWS // 32),
    } | other  # fmt: skip


@pytest.fixture
def _petastorm_as_it_was() -> Iterator[None]:
    from petastore.interop import petastorm

    yield
    petastorm.uninstall()


@pytest.mark.usefixtures("_petastorm_as_it_was")
def test_keras_data_module_passes_each_row_to_the_estimator(numbered: Callable[..., str]) -> None:
    from horovod.spark.keras.util import TFKerasUtil

    from petastore.interop.horovod_spark.keras import PetastoreDataModule

    names = ["id", "x"]
    metadata = {name: {"is_sparse_vector_only": False, "intermediate_format": "nochange"} for name in [*names, "y"]}
    make = TFKerasUtil.make_dataset_fn(names, ["y"], None, metadata, [[-1], [-1, 4]], [[-1]], ["y"])
    url, seen = numbered(), []
    for rank in range(2):
        asked = told(url, rank, make_dataset=make, shuffle=False, random_seed=3, transform_fn=None)
        with PetastoreDataModule.with_options()(**asked) as module:
            ids: list[int] = []
            for (numbers, x), labels in module.train_data().take(7):
                assert x.shape[1:] == (4,)
                assert abs(x.numpy().sum(axis=1) - labels.numpy().reshape(-1)).max() < 1e-5
                ids += numbers.numpy().tolist()
        seen += list(dict.fromkeys(ids))
    assert sorted(seen) == list(range(ROWS))


# Lightning's own warnings: about torch's trees, and about loaders without worker processes, which use threads.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*num_workers:UserWarning")
def test_lightning_data_module_yields_each_row_once_per_epoch(numbered: Callable[..., str]) -> None:
    import pytorch_lightning
    import torch

    from petastore.interop.horovod_spark.lightning import PetastoreDataModule

    class Model(pytorch_lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)
            self.seen: dict[str, list[list[int]]] = {"train": [], "val": []}

        def on_train_epoch_start(self) -> None:
            self.seen["train"].append([])

        def on_validation_epoch_start(self) -> None:
            self.seen["val"].append([])

        def training_step(self, batch: Any, _: int) -> Any:
            self.seen["train"][-1] += batch["id"].tolist()
            return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])

        def validation_step(self, batch: Any, _: int) -> None:
            self.seen["val"][-1] += batch["id"].tolist()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    url, trained, validated = numbered(), [], []
    for rank in range(2):
        asked = told(url, rank, shuffle=True, seed=5, num_reader_epochs=None, reader_worker_count=2,
                     transformation=None, transformation_edit_fields=None, transformation_removed_fields=None,
                     debug_data_loader=False, train_async_data_loader_queue_size=None,
                     val_async_data_loader_queue_size=None)  # fmt: skip
        model, module = Model(), PetastoreDataModule(**asked)
        pytorch_lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            num_sanity_val_steps=0, enable_model_summary=False,
        ).fit(model, datamodule=module)  # fmt: skip
        trained.append(model.seen["train"])
        validated.append(model.seen["val"])
    for epoch in range(2):
        rows = trained[0][epoch] + trained[1][epoch]
        assert len(rows) == len(set(rows)) == ROWS // 32 * 32
        assert sorted(validated[0][epoch] + validated[1][epoch]) == list(range(ROWS))
    assert trained[0][0] != trained[0][1]
