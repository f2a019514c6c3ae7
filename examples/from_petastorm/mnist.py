"""Digits: images as arrays in a dataset, a transform that makes of them what a network takes, and training by PyTorch.

The digits are those of scikit-learn, 8 × 8 pixels: nothing is downloaded.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from petastorm import TransformSpec, make_reader
from petastorm.codecs import NdarrayCodec, ScalarCodec
from petastorm.etl.dataset_metadata import materialize_dataset
from petastorm.pytorch import DataLoader
from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType
from sklearn.datasets import load_digits

MnistSchema = Unischema(
    "MnistSchema",
    [
        UnischemaField("idx", np.int_, (), ScalarCodec(IntegerType()), False),
        UnischemaField("digit", np.int_, (), ScalarCodec(IntegerType()), False),
        UnischemaField("image", np.uint8, (8, 8), NdarrayCodec(), False),
    ],
)


def mnist_data_to_petastorm_dataset(folder, rows_count=600):
    """Write two thirds as `train` and the rest as `test`."""
    digits = load_digits()
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    parts = {"train": range(rows_count * 2 // 3), "test": range(rows_count * 2 // 3, rows_count)}
    for part, numbers in parts.items():
        url = (Path(folder).resolve() / part).as_uri()
        rows = [
            {"idx": number, "digit": int(digits.target[number]), "image": digits.images[number].astype(np.uint8)}
            for number in numbers
        ]
        with materialize_dataset(spark, url, MnistSchema, row_group_size_mb=1):
            cells = [dict_to_spark_row(MnistSchema, row) for row in rows]
            spark.createDataFrame(cells, MnistSchema.as_spark_schema()).coalesce(4).write.parquet(url)


def transform_row(row):
    """What the network takes: one channel of floats."""
    return {"image": (row["image"].astype(np.float32) / 16)[np.newaxis], "digit": row["digit"]}


def batches_of(url, batch_size, seed):
    """One epoch of shuffled batches."""
    spec = TransformSpec(transform_row, removed_fields=["idx"])
    with make_reader(url, num_epochs=1, transform_spec=spec, seed=seed, shuffle_rows=True) as reader:
        yield from DataLoader(reader, batch_size=batch_size)


def main(folder, epochs=8):
    """Write, train, and print the share of test digits that are told right."""
    mnist_data_to_petastorm_dataset(folder)
    torch.manual_seed(0)
    layers = torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    train, test = ((Path(folder).resolve() / part).as_uri() for part in ("train", "test"))
    for epoch in range(epochs):
        for batch in batches_of(train, 32, seed=epoch):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["image"]), batch["digit"]).backward()
            optimizer.step()
    right = sum(int((model(b["image"]).argmax(1) == b["digit"]).sum()) for b in batches_of(test, 50, seed=0))
    print("right", right / 200)


if __name__ == "__main__":
    main(sys.argv[1])
