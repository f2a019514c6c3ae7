"""Read the hello world dataset with TensorFlow: a tf.data.Dataset of dicts."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow greets its user at length otherwise

from examples.hello_world.schema import DEFAULT_URL
from petastore import make_reader
from petastore.adapters.tensorflow import make_tf_dataset


def main(url: str = DEFAULT_URL) -> None:
    """Print what each row holds, then batches of four, in which arrays of different shapes are ragged."""
    with make_reader(url) as reader:
        for row in make_tf_dataset(reader):
            print(row["id"].numpy(), row["image1"].shape, row["array_4d"].shape)
    with make_reader(url) as reader:
        dataset = make_tf_dataset(reader, batch_size=4)
        for name, spec in dataset.element_spec.items():
            print(f"{name}: {spec}")
        for batch in dataset:
            print(batch["id"].numpy().tolist(), batch["array_4d"].shape)


if __name__ == "__main__":
    main(*sys.argv[1:2])
