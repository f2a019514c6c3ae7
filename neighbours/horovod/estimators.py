"""Horovod's torch estimator on two Spark executors, on images: `fit` and `fit_on_parquet`, and their options.

Run by `test_estimators.py`: `python -m neighbours.horovod.estimators FOLDER`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch

from petastore import Unischema, UnischemaField, write_dataset
from petastore.codecs import CompressedImageCodec, NdarrayCodec
from petastore.spark import dataset_as_dataframe, local_session

EXECUTORS = "local-cluster[2,1,1024]"
ROWS, VALIDATION, BATCH = 64, 17, 8
"""The validation rows are odd, so two processes cannot share them equally."""

SIDE, WIDTH = 8, 5
SCHEMA = Unischema(
    "digits",
    [
        UnischemaField("id", np.int64),
        UnischemaField("image", np.uint8, (SIDE, SIDE), CompressedImageCodec("png")),
        UnischemaField("grid", np.float32, (2, 3), NdarrayCodec()),
        UnischemaField("label", np.float32),
        UnischemaField("weight", np.float32),
    ],
)


def images(ids: Any) -> Any:
    """Return images of constant brightness, which is the id of the row."""
    return np.repeat(ids, SIDE * SIDE).reshape(-1, SIDE, SIDE)


def dimmed_images(ids: Any) -> Any:
    return images(ids) / 4


def grids(ids: Any) -> Any:
    return ids[:, None, None] + np.arange(6).reshape(2, 3)


def vectors(ids: Any) -> Any:
    return np.eye(WIDTH)[ids % WIDTH] * (ids[:, None] + 1)


def dimmed(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "image": row["image"].astype(np.float32) / 4}


def label_itself(output: torch.Tensor, label: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    """A loss that equals the label; the weight of a row is one over its label, so a mix-up is visible."""
    loss = output * 0 + label
    return loss if reduction == "none" else loss.mean()


class Model(torch.nn.Module):
    """A model that records its rows by process, and checks their features."""

    def __init__(self, folder: str, features: Mapping[str, Callable[[Any], Any]]) -> None:
        super().__init__()
        self.folder = folder
        self.features = features
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, ids: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        numbers = ids.reshape(-1).long().numpy()
        mode = "train" if self.training else "val"
        with Path(self.folder, f"{mode}-{os.getpid()}").open("a") as log:
            log.write(json.dumps(numbers.tolist()) + "\n")
        for (name, of_rows), values in zip(self.features.items(), given, strict=True):
            assert np.array_equal(values.numpy(), of_rows(numbers).astype(np.float32)), (name, numbers)
        return self.layer(ids / ROWS)


def written(url: str, first: int, rows: int) -> str:
    ids = np.arange(first, first + rows)
    columns = {"id": ids, "image": images(ids).astype(np.uint8), "grid": grids(ids).astype(np.float32)}
    label = (ids + 1).astype(np.float32)
    write_dataset(url, SCHEMA, {**columns, "label": label, "weight": 1 / label}, rows_per_row_group=7)
    return url


def facts_of(folder: Path) -> dict[str, Any]:
    """Return for each mode the batches of each process."""
    found: dict[str, Any] = {"train": [], "val": []}
    for log in sorted(folder.iterdir()):
        found[log.name.partition("-")[0]].append([json.loads(line) for line in log.read_text().splitlines()])
    return found


def estimator_of(store: Any, folder: Path, features: Mapping[str, Callable[[Any], Any]], **options: Any) -> Any:
    from horovod.spark.torch import TorchEstimator

    from petastore.interop.horovod_spark.torch import PetastoreDataModule

    folder.mkdir()
    model = Model(str(folder), features)
    shapes = {"image": [-1, SIDE, SIDE], "grid": [-1, 2, 3], "vector": [-1, WIDTH]}
    asked = {
        "num_proc": 2, "store": store, "model": model, "optimizer": torch.optim.SGD(model.parameters(), lr=0.001),
        "loss": torch.nn.functional.mse_loss, "feature_cols": ["id", *features], "label_cols": ["label"],
        "input_shapes": [[-1, 1], *(shapes[name] for name in features)], "batch_size": BATCH, "epochs": 2, "verbose": 0,
        "random_seed": 3, "data_module": PetastoreDataModule, "use_gpu": False,
    }  # fmt: skip
    return TorchEstimator(**(asked | options))


def with_vectors(frame: Any) -> Any:
    """Return the DataFrame with a column of sparse vectors."""
    from pyspark.ml.linalg import Vectors, VectorUDT
    from pyspark.sql.functions import udf

    sparse = udf(lambda number: Vectors.sparse(WIDTH, [number % WIDTH], [number + 1.0]), VectorUDT())
    return frame.withColumn("vector", sparse("id"))


def main(folder: Path) -> None:
    from petastore.interop.horovod_spark.store import PetastoreStore
    from petastore.interop.horovod_spark.torch import PetastoreDataModule

    train, val = written(str(folder / "train"), 0, ROWS), written(str(folder / "val"), ROWS, VALIDATION)
    spark = local_session("estimators", EXECUTORS)
    facts: dict[str, Any] = {}

    def noted(name: str, run: Any, features: Mapping[str, Callable[[Any], Any]], **options: Any) -> None:
        trained = run(estimator_of(store, folder / name, features, **options))
        facts[name] = facts_of(folder / name) | {"losses": [epoch["train"]["loss"] for epoch in trained.getHistory()]}

    weighted = {"loss": label_itself, "sample_weight_col": "weight"}
    store = PetastoreStore.create(str(folder / "runs"), train_path=train, val_path=val)
    noted("in place", lambda one: one.fit_on_parquet(), {"image": images, "grid": grids}, validation=0.1)
    still = {"data_module": PetastoreDataModule.with_options(shuffle=False), "inmemory_cache_all": True}
    noted("still", lambda one: one.fit_on_parquet(), {"image": dimmed_images}, transformation_fn=dimmed, **still)

    store = PetastoreStore(str(folder / "more-runs"))
    frame = with_vectors(dataset_as_dataframe(spark, train))
    noted("from a DataFrame", lambda one: one.fit(frame), {"image": images, "vector": vectors}, **weighted)
    flat = frame.selectExpr("id", "flatten(image) as image", "vector", "label", "weight")
    split = {"validation": 0.2, "transformation_fn": dimmed}
    features = {"image": dimmed_images, "vector": vectors}
    noted("split by chance", lambda one: one.setCompressSparseCols(True).fit(flat), features, **split, **weighted)
    for mode in ("train", "val"):
        stored = pq.read_table(f"{folder}/more-runs/intermediate_{mode}_data.0", columns=["id"])
        facts[f"stored for {mode}"] = sorted(stored["id"].to_pylist())
    spark.stop()
    (folder / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
