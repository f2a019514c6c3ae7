"""Lightning on two ranks with petastore's loaders: print the rows of each epoch, or the error."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import lightning
import torch

from neighbours.torch.programs.gathered import tell
from petastore import make_reader
from petastore.adapters.torch import BlockSampler, DataLoader, MapDataset, ReaderDataset
from petastore.errors import InvalidArgumentError


class Noting(lightning.LightningModule):  # type: ignore[misc]
    """A model that records the rows of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.epochs: list[list[int]] = []
        self.validated: list[list[int]] = []
        self.dataset: ReaderDataset | None = None

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])
        if self.dataset is not None:
            self.dataset.set_epoch(self.current_epoch)

    def training_step(self, batch: dict[str, Any], _: int) -> torch.Tensor:
        self.epochs[-1] += batch["id"].tolist()
        return torch.nn.functional.mse_loss(self.layer(batch["x"])[:, 0], batch["y"])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def validation_step(self, batch: dict[str, Any], _: int) -> None:
        self.validated[-1] += batch["id"].tolist()

    def predict_step(self, batch: dict[str, Any], _: int) -> list[int]:
        ids: list[int] = batch["id"].tolist()
        assert self.layer(batch["x"]).shape == (len(ids), 1)
        return ids

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.05)


def trainer(epochs: int = 2, plugins: Any = None) -> lightning.Trainer:
    return lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=plugins,
    )


def main(url: str) -> None:
    """Run and print every case."""
    first = trainer()
    ranks: Any = {"cur_shard": first.global_rank, "shard_count": first.world_size}
    order: Any = {"shuffle_rows": True, "seed": 7}

    module = Noting()
    with make_reader(url, **ranks, **order) as reader, make_reader(url, **ranks, shuffle_row_groups=False) as held_out:
        first.fit(module, DataLoader(reader, batch_size=16), DataLoader(held_out, batch_size=16))
        tell("reader", module.epochs)
        tell("validation", module.validated)
        predicted = trainer().predict(module, DataLoader(held_out, batch_size=16, nulls={"y": 0.5}))
        tell("prediction", [i for ids in predicted or [] for i in ids])

    module, rows = Noting(), MapDataset(url)
    trainer().fit(module, torch.utils.data.DataLoader(rows, 16, sampler=BlockSampler(rows, last_batch="drop")))
    tell("sampler of rows", module.epochs)

    for case, is_told in [("dataset", False), ("dataset that is told", True)]:
        module, dataset = Noting(), ReaderDataset(url, batch_size=16, **ranks, **order)
        module.dataset = dataset if is_told else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            trainer().fit(module, torch.utils.data.DataLoader(dataset, batch_size=None))
        said = [str(warning.message) for warning in caught if "set_epoch" in str(warning.message)]
        tell(case, {"epochs": module.epochs, "said": said})

    with make_reader(url, **ranks, **order, num_epochs=2) as reader:
        try:
            trainer().fit(Noting(), DataLoader(reader, batch_size=16))
        except InvalidArgumentError as refusal:
            tell("two epochs in one", str(refusal))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
