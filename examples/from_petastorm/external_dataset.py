"""Hello world, on Parquet that knows nothing of Petastorm: written by Spark, read in batches of columns."""

import os
import sys
from pathlib import Path

from petastorm import TransformSpec, make_batch_reader
from petastorm.predicates import in_lambda
from petastorm.pytorch import DataLoader
from petastorm.unischema import UnischemaField
from pyspark.sql import SparkSession
from pyspark.sql.functions import col


def generate_external_dataset(output_url, rows_count=100):
    """Three columns of numbers, in plain Parquet."""
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    frame = spark.range(rows_count).select(
        col("id").cast("int"), (col("id") * 2).alias("value1"), (col("id") / 4).alias("value2")
    )
    frame.repartition(4).write.mode("overwrite").parquet(output_url)


def python_hello_world(dataset_url):
    """Each batch is a named tuple of arrays."""
    with make_batch_reader(dataset_url, schema_fields=["id", "value1", "value2"]) as reader:
        rows = sum(len(batch.id) for batch in reader)
    print("python", rows)


def predicate_hello_world(dataset_url):
    """A predicate of a batch reader is asked about columns."""
    keep = in_lambda(["value1"], lambda value1: value1 % 20 == 0)
    with make_batch_reader(dataset_url, predicate=keep) as reader:
        print("predicate", sorted(int(number) for batch in reader for number in batch.id))


def double(frame):
    """A transform of a batch reader is given a DataFrame."""
    frame["value2"] = frame["value2"] * 2
    return frame


def pytorch_hello_world(dataset_url):
    """Batches of the size that training wants, with a transform on the way."""
    spec = TransformSpec(double, edit_fields=[("value2", "float64", (), False)], removed_fields=["value1"])
    with make_batch_reader(dataset_url, transform_spec=spec, num_epochs=2) as reader:
        assert all(isinstance(field, UnischemaField) for field in reader.schema.fields.values())
        batches = list(DataLoader(reader, batch_size=16))
    print("torch", sum(len(batch["id"]) for batch in batches), sorted(batches[0]))


def tensorflow_hello_world(dataset_url):
    """Row groups as tensors, and rows of them."""
    from petastorm.tf_utils import make_petastorm_dataset

    with make_batch_reader(dataset_url) as reader:
        rows = make_petastorm_dataset(reader).unbatch().batch(10)
        print("tensorflow", sum(int(batch.id.shape[0]) for batch in rows))


def main(folder):
    """Write, then read in each way."""
    dataset_url = Path(folder).resolve().as_uri()
    generate_external_dataset(dataset_url)
    python_hello_world(dataset_url)
    predicate_hello_world(dataset_url)
    pytorch_hello_world(dataset_url)
    tensorflow_hello_world(dataset_url)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main(sys.argv[1])
