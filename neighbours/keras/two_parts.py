"""One of two Keras processes on JAX: fits in several modes, and prints the rows or the error of each."""

from __future__ import annotations

import json
import sys
from typing import Any

import keras

from petastore import make_reader
from petastore.adapters.keras import PyDataset
from petastore.errors import InvalidArgumentError


class Began(keras.callbacks.Callback):  # type: ignore[misc]
    """Clears the rows with which Keras built the model."""

    def __init__(self, asked: list[int]) -> None:
        super().__init__()
        self.asked = asked

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
        self.asked.clear()


def main() -> None:
    url, address, number, *modes = sys.argv[1:]
    keras.distribution.initialize(address, 2, int(number))
    for mode in modes:
        keras.distribution.set_distribution(None)
        print(json.dumps([mode, outcome_of(mode, url)]), flush=True)


def outcome_of(mode: str, url: str) -> Any:
    distribution = keras.distribution.DataParallel(auto_shard_dataset=mode.endswith("auto"))
    if mode != "lost auto":  # in that mode it is set later, so petastore cannot know it
        keras.distribution.set_distribution(distribution)
    last_batch: Any = mode if mode in ("even", "drop", "pad", "wrap") else "pad"
    parts = {} if mode.startswith("whole") else {"cur_shard": distribution.data_shard_id, "shard_count": 2}
    asked: list[int] = []

    def line(batch: dict[str, Any]) -> Any:
        asked.extend(batch["id"][batch["valid"]].tolist() if "valid" in batch else batch["id"].tolist())
        x = batch["id"].astype("float32")[:, None] / 100
        return x, 3 * x

    with make_reader(url, seed=3, shuffle_rows=True, last_batch=last_batch, **parts) as reader:
        try:
            if "tf" in mode or mode == "lost auto":
                return _of_tf_data(reader, distribution, mode)
            dataset = _loader_of_torch(reader, asked) if "torch" in mode else PyDataset(reader, 10, line)
            model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            model.fit(dataset, epochs=1, shuffle=False, verbose=0, callbacks=[Began(asked)])
        except InvalidArgumentError as problem:
            return str(problem)
    return {"trained": asked, "weights": [weight.numpy().ravel().tolist() for weight in model.weights]}


def _loader_of_torch(reader: Any, asked: list[int]) -> Any:
    import torch

    from petastore.adapters.torch import DataLoader

    def line(rows: list[dict[str, Any]]) -> Any:
        asked.extend(int(row["id"]) for row in rows if row["valid"])
        x = torch.tensor([[row["id"] / 100] for row in rows], dtype=torch.float32)
        return x, 3 * x

    return DataLoader(reader, batch_size=10, collate_fn=line)


def _of_tf_data(reader: Any, distribution: Any, mode: str) -> list[int]:
    """Return the rows of a `tf.data.Dataset` that Keras gives to a process, with the call of its trainer."""
    from petastore.adapters.tensorflow import make_tf_dataset

    if mode == "whole tf late":
        keras.distribution.set_distribution(None)
    dataset = make_tf_dataset(reader).batch(10) if mode == "lost auto" else make_tf_dataset(reader, batch_size=10)
    if mode == "whole tf late":
        keras.distribution.set_distribution(distribution)
    found = [batch["id"].numpy()[batch["valid"].numpy()] for batch in distribution.distribute_dataset(dataset)]
    return [int(i) for ids in found for i in ids]


if __name__ == "__main__":
    main()
