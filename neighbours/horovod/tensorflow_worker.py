"""A Horovod rank that trains with TensorFlow: `tensorflow_worker URL WAY EPOCHS BATCH_SIZE` under `horovodrun`.

The way is `tape`, a loop with a `DistributedGradientTape`, or `fit`, Keras' own with a `DistributedOptimizer`. Rank 0
prints the results of both ranks as JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import horovod.tensorflow as hvd
import horovod.tensorflow.keras
import keras
import tensorflow as tf

from petastore import make_reader
from petastore.adapters.tensorflow import make_tf_dataset


def by_tape(model: Any, dataset: Any) -> list[int]:
    """Train on all batches; return the ids of their rows."""
    optimizer = keras.optimizers.SGD(0.05)
    ids: list[int] = []
    for batch in dataset:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(batch["x"])[:, 0] - batch["y"]))
        weights = [weight.value for weight in model.trainable_weights]  # the TensorFlow variables inside Keras 3's
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        optimizer.apply_gradients(zip(gradients, model.trainable_weights, strict=True))
        ids += batch["id"].numpy().tolist()
    return ids


def by_fit(model: Any, dataset: Any) -> list[int]:
    """Train with `fit`, which does not give access to the ids; return an empty list."""
    optimizer = horovod.tensorflow.keras.DistributedOptimizer(keras.optimizers.SGD(0.05))
    model.compile(optimizer, loss="mse")
    model.fit(dataset.map(lambda batch: (batch["x"], batch["y"])), verbose=0)
    return []


def main(url: str, way: str, epochs: int, batch_size: int) -> None:
    """Train, and print the results of all ranks."""
    hvd.init()
    keras.utils.set_random_seed(7)  # the same initial weights on both ranks
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    with make_reader(
        url, cur_shard=hvd.rank(), shard_count=hvd.size(), shuffle_rows=True, seed=3, num_epochs=epochs
    ) as reader:
        dataset = make_tf_dataset(reader, batch_size=batch_size)
        steps = int(dataset.cardinality())
        ids = (by_tape if way == "tape" else by_fit)(model, dataset)
    mine = {"steps": steps, "ids": ids, "weights": [weight.tolist() for weight in model.get_weights()]}
    everybody = hvd.allgather_object(mine)
    if hvd.rank() == 0:
        print("TOLD", json.dumps(everybody), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
