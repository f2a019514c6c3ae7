"""Write the hello world dataset with Spark."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from examples.hello_world.schema import DEFAULT_URL, HelloWorldSchema
from petastore.spark import dict_to_spark_row, local_session, materialize_dataset

ROWS = 10


def row_generator(x: int) -> dict[str, Any]:
    """The row number `x`: an image and an array of random bytes, the array's first and last size depending on `x`."""
    rng = np.random.default_rng(x)
    return {
        "id": np.int32(x),
        "image1": rng.integers(0, 256, (128, 256, 3), dtype=np.uint8),
        "array_4d": rng.integers(0, 256, (1 + x % 4, 128, 30, 3 - x % 3), dtype=np.uint8),
    }


def main(url: str = DEFAULT_URL) -> None:
    """Write ten rows to `url`, over whatever dataset is there."""
    spark = local_session()
    with materialize_dataset(spark, url, HelloWorldSchema, row_group_size_mb=256):
        rows = [dict_to_spark_row(HelloWorldSchema, row_generator(x)) for x in range(ROWS)]
        frame = spark.createDataFrame(rows, HelloWorldSchema.as_spark_schema())
        frame.coalesce(2).write.mode("overwrite").parquet(url)
    print(f"wrote {ROWS} rows to {url}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
