"""Horovod's estimator for torch on Spark, two processes, on images: `fit` and `fit_on_parquet`.

Run by `test_estimators.py`: `python -m neighbours.horovod.estimators FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import CompressedImageCodec
from petastore.spark import dataset_as_dataframe, local_session

ROWS, VALIDATION, SIDE = 64, 12, 8
SCHEMA = Unischema(
    "digits",
    [
        UnischemaField("id", np.int64),
        UnischemaField("image", np.uint8, (SIDE, SIDE), CompressedImageCodec("png")),
        UnischemaField("label", np.float32),
    ],
)


class Model(torch.nn.Module):
    """Notes which rows it was given, by process."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder
        self.layer = torch.nn.Linear(SIDE * SIDE, 1)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        mode = "train" if self.training else "val"
        with Path(self.folder, f"{mode}-{os.getpid()}").open("a") as log:
            log.write(json.dumps([ids.reshape(-1).int().tolist(), list(image.shape)]) + "\n")
        # Each picture has one brightness, which its number says.
        assert torch.equal(image.reshape(len(ids), -1)[:, 0], ids.reshape(-1))
        return self.layer(image.reshape(len(ids), -1) / 64)


def written(url: str, first: int, rows: int) -> str:
    pictures = (
        {"id": i, "image": np.full((SIDE, SIDE), i, np.uint8), "label": i / 64} for i in range(first, first + rows)
    )
    write_dataset(url, SCHEMA, pictures, rows_per_row_group=7)
    return url


def facts_of(folder: Path) -> dict[str, Any]:
    """Of each mode: what each process got, and in which shapes."""
    found: dict[str, Any] = {"train": [], "val": []}
    for log in sorted(folder.iterdir()):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found[log.name.partition("-")[0]].append([ids for ids, _ in lines])
        found["shape"] = lines[0][1][1:]  # of one picture
    return found


def estimator_of(store: Any, folder: Path, **options: Any) -> Any:
    from horovod.spark.torch import TorchEstimator

    from petastore.interop.horovod_spark.torch import PetastoreDataModule

    folder.mkdir()
    model = Model(str(folder))
    asked = {
        "num_proc": 2, "store": store, "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "loss": torch.nn.functional.mse_loss, "feature_cols": ["image", "id"], "label_cols": ["label"],
        "input_shapes": [[-1, SIDE, SIDE], [-1, 1]], "batch_size": 8, "epochs": 2, "verbose": 0, "random_seed": 3,
        "data_module": PetastoreDataModule, "use_gpu": False,
    }  # fmt: skip
    return TorchEstimator(**(asked | options))


def main(folder: Path) -> None:
    from petastore.interop.horovod_spark.store import PetastoreStore
    from petastore.interop.horovod_spark.torch import PetastoreDataModule

    train, val = written(str(folder / "train"), 0, ROWS), written(str(folder / "val"), ROWS, VALIDATION)
    spark = local_session()
    facts: dict[str, Any] = {}

    def noted(name: str, run: Any, **options: Any) -> None:
        trained = run(estimator_of(store, folder / name, **options))
        history = [epoch["train"]["loss"] for epoch in trained.getHistory()]
        facts[name] = facts_of(folder / name) | {"finite": all(np.isfinite(history)), "epochs": len(history)}

    store = PetastoreStore.create(str(folder / "runs"), train_path=train, val_path=val)
    noted("in place", lambda estimator: estimator.fit_on_parquet(), validation=0.1)
    still = PetastoreDataModule.with_options(shuffle=False)
    noted("still", lambda estimator: estimator.fit_on_parquet(), data_module=still, inmemory_cache_all=True)

    store = PetastoreStore(str(folder / "more-runs"))
    frame = dataset_as_dataframe(spark, train)
    noted("from a DataFrame", lambda estimator: estimator.fit(frame))
    spark.stop()
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
