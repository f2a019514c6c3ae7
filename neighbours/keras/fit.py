"""Fit a model on a `PyDataset`, with a backup every four batches, and print the rows that were trained on.

If it died, the next start in the same folder resumes from the backup.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import keras

from petastore import make_reader
from petastore.adapters.keras import PyDataset, ReaderCheckpoint


class Log(keras.callbacks.Callback):  # type: ignore[misc]
    """Records each training batch, and kills the process after a given number of them."""

    def __init__(self, asked: list[list[int]], die_after: int, log: Path) -> None:
        super().__init__()
        self.asked, self.die_after, self.log, self.trained = asked, die_after, log, 0

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
        self.asked.clear()  # the batches with which Keras built the model

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002 (Keras gives it by name)
        with self.log.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self.asked[self.trained]) + "\n")
        self.trained += 1
        if self.trained == self.die_after:
            os._exit(17)


def main() -> None:
    url, log, die_after, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    asked: list[list[int]] = []

    def noted(batch: dict[str, Any]) -> Any:
        asked.append(batch["id"].tolist())
        return line(batch)

    def line(batch: dict[str, Any]) -> Any:
        x = batch["id"].astype("float32")[:, None] / 100
        return x, 3 * x

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1, momentum=0.5), "mse")
    epochs = 3 if not steps else 5
    with (
        make_reader(url, seed=3, shuffle_rows=True, num_epochs=1 if not steps else None) as reader,
        make_reader(url, shuffle_row_groups=False) as held_out,
    ):
        backup = keras.callbacks.BackupAndRestore("backup", save_freq="epoch" if steps else 4)
        history = model.fit(
            PyDataset(reader, 10, noted),
            validation_data=PyDataset(held_out, 50, line),
            epochs=epochs,
            steps_per_epoch=steps or None,
            shuffle=False,
            verbose=0,
            callbacks=[Log(asked, die_after, log), backup, ReaderCheckpoint(reader)],
        )
    weights = [float(keras.ops.convert_to_numpy(weight).ravel()[0]) for weight in model.weights]
    print(json.dumps({"weights": weights, "validated": len(history.history["val_loss"])}))


if __name__ == "__main__":
    main()
