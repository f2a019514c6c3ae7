"""Hello world, on a dataset of Petastorm's: written by Spark; read by plain Python, PyTorch and TensorFlow."""

import os
import sys
from pathlib import Path

import numpy as np
from petastorm import make_reader
from petastorm.codecs import CompressedImageCodec, NdarrayCodec, ScalarCodec
from petastorm.etl.dataset_metadata import materialize_dataset
from petastorm.pytorch import DataLoader
from petastorm.unischema import Unischema, UnischemaField, dict_to_spark_row
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType

HelloWorldSchema = Unischema(
    "HelloWorldSchema",
    [
        UnischemaField("id", np.int32, (), ScalarCodec(IntegerType()), False),
        UnischemaField("image1", np.uint8, (128, 256, 3), CompressedImageCodec("png"), False),
        UnischemaField("array_4d", np.uint8, (None, 128, 30, None), NdarrayCodec(), False),
    ],
)


def row_generator(x):
    """One row, as a dict of NumPy values."""
    rng = np.random.default_rng(x)
    return {
        "id": x,
        "image1": rng.integers(0, 255, dtype=np.uint8, size=(128, 256, 3)),
        "array_4d": rng.integers(0, 255, dtype=np.uint8, size=(4, 128, 30, 3)),
    }


def generate_petastorm_dataset(output_url, rows_count=10):
    """Write the rows with Spark."""
    spark = SparkSession.builder.config("spark.driver.memory", "2g").master("local[2]").getOrCreate()
    with materialize_dataset(spark, output_url, HelloWorldSchema, 256):
        rows_rdd = (
            spark.sparkContext.parallelize(range(rows_count))
            .map(row_generator)
            .map(lambda x: dict_to_spark_row(HelloWorldSchema, x))
        )
        frame = spark.createDataFrame(rows_rdd, HelloWorldSchema.as_spark_schema())
        frame.coalesce(2).write.mode("overwrite").parquet(output_url)


def python_hello_world(dataset_url):
    """Rows are named tuples."""
    with make_reader(dataset_url) as reader:
        for row in reader:
            print("python", row.id, row.image1.shape, row.array_4d.shape)


def pytorch_hello_world(dataset_url):
    """A DataLoader makes batches of tensors."""
    with DataLoader(make_reader(dataset_url, num_epochs=1, workers_count=4, seed=0), batch_size=4) as loader:
        for row in loader:
            print("torch", len(row["id"]), tuple(row["image1"].shape))


def tensorflow_hello_world(dataset_url):
    """A tf.data.Dataset of named tuples of tensors."""
    from petastorm.tf_utils import make_petastorm_dataset

    with make_reader(dataset_url) as reader:
        for sample in make_petastorm_dataset(reader):
            print("tensorflow", int(sample.id), tuple(sample.image1.shape))


def main(folder):
    """Write, then read in each way."""
    dataset_url = Path(folder).resolve().as_uri()
    generate_petastorm_dataset(dataset_url)
    python_hello_world(dataset_url)
    pytorch_hello_world(dataset_url)
    tensorflow_hello_world(dataset_url)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1])
