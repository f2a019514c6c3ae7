"""Spark to training without a step between: a DataFrame is kept once, and read by PyTorch and by TensorFlow."""

import os
import sys
from pathlib import Path

import numpy as np
from petastorm.spark import SparkDatasetConverter, make_spark_converter
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, rand, when

BATCH_SIZE = 32


def frames(spark, rows_count=640):
    """Two features in a vector, and whether their sum is above 1; three quarters to train on."""
    frame = spark.range(rows_count).select("id", rand(seed=1).alias("x"), rand(seed=2).alias("y"))
    frame = frame.withColumn("label", when(col("x") + col("y") > 1, 1).otherwise(0).cast("long"))
    frame = VectorAssembler(inputCols=["x", "y"], outputCol="features").transform(frame)
    frame = frame.select("id", "features", "label")
    return frame.where("id % 4 != 0").drop("id"), frame.where("id % 4 = 0").drop("id")


def torch_accuracy(train, test):
    """Train a line between the two kinds of points with PyTorch."""
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with train.make_torch_dataloader(batch_size=BATCH_SIZE, num_epochs=10) as loader:
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"]).backward()
            optimizer.step()
    with test.make_torch_dataloader(batch_size=BATCH_SIZE, num_epochs=1) as loader:
        right = sum(int((model(batch["features"]).argmax(1) == batch["label"]).sum()) for batch in loader)
    return right / len(test)


def tensorflow_accuracy(train, test):
    """The same with Keras, over a dataset without end and a number of steps, as the converter has it by default."""
    import tensorflow as tf

    tf.keras.utils.set_random_seed(0)
    model = tf.keras.Sequential([tf.keras.Input((2,)), tf.keras.layers.Dense(2)])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.1), loss=loss)
    with train.make_tf_dataset(batch_size=BATCH_SIZE) as dataset:
        pairs = dataset.map(lambda batch: (batch.features, batch.label))
        model.fit(pairs, steps_per_epoch=len(train) // BATCH_SIZE, epochs=10, verbose=0)
    with test.make_tf_dataset(batch_size=BATCH_SIZE, num_epochs=1) as dataset:
        told = [(model(batch.features).numpy().argmax(1), batch.label.numpy()) for batch in dataset]
    return float(np.mean(np.concatenate([guess == label for guess, label in told])))


def main(folder):
    """Keep both DataFrames, train on one and count right answers on the other, and remove what was kept."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    cache = Path(folder).resolve() / "cache"
    spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, cache.as_uri())
    train, test = (make_spark_converter(frame) for frame in frames(spark))
    print("rows", len(train), len(test))
    print("torch", torch_accuracy(train, test))
    print("tensorflow", tensorflow_accuracy(train, test))
    train.delete()
    test.delete()
    print("left", [path.name for path in cache.rglob("*.parquet")])


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1])
