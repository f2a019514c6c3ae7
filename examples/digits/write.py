"""Put the digits through Spark into Parquet.

```text
<directory>/split=train/   1,437 rows, a dataset of its own
<directory>/split=test/      360 rows, a dataset of its own
```

Each is what a reader opens. Together they are one table that is partitioned by `split`, as Spark, Arrow and DuckDB
know it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from examples.digits.schema import DigitSchema, dataset_url
from petastore.spark import dict_to_spark_row, materialize_dataset

__all__ = ["write_digits"]

TEST_ROWS = 360
ROWS_PER_ROW_GROUP = 100


def write_digits(spark: Any, directory: Path, *, seed: int) -> dict[str, int]:
    """Write both datasets, over what is there.

    Args:
        spark: A session.
        directory: Where the two datasets go.
        seed: Decides which digits are held out.

    Returns:
        Rows of each split.
    """
    digits = load_digits()
    order = np.random.default_rng(seed).permutation(len(digits.target))
    splits = {"train": np.sort(order[TEST_ROWS:]), "test": np.sort(order[:TEST_ROWS])}
    for split, ids in splits.items():
        rows = [
            dict_to_spark_row(
                DigitSchema,
                {"id": np.int32(i), "image": digits.images[i].astype(np.uint8), "label": np.int64(digits.target[i])},
            )
            for i in ids
        ]
        url = dataset_url(directory, split)
        with materialize_dataset(spark, url, DigitSchema, rows_per_row_group=ROWS_PER_ROW_GROUP):
            frame = spark.createDataFrame(rows, DigitSchema.as_spark_schema())
            frame.coalesce(2).write.mode("overwrite").parquet(url)
    return {split: len(ids) for split, ids in splits.items()}
