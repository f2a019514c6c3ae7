"""Converters of Spark DataFrames."""

from __future__ import annotations

from typing import Any

from petastore.spark import SparkDatasetConverter, make_spark_converter

converter: SparkDatasetConverter = make_spark_converter("file:///data/points", dtype="float32")
with converter.make_torch_dataloader(64, num_epochs=1, cur_shard=0, shard_count=2, last_batch="drop") as loader:
    for batch in loader:
        print(batch["x"].shape)
        batch.nosuch  # type: ignore[attr-defined]
converter.make_torch_dataloader(64, last_batch="evn")  # type: ignore[arg-type]
converter.make_torch_dataloader(64, shufle_rows=True)  # type: ignore[call-arg]
converter.make_tf_dataset(64, seeds=1)  # type: ignore[call-arg]
make_spark_converter("file:///data/points", dtype="float16")  # type: ignore[arg-type]
make_spark_converter("file:///data/points", compression_codec="zstd")
make_spark_converter("file:///data/points", compression_codec="zstandard")  # type: ignore[arg-type]


def fit(reader: Any, **options: Any) -> list[int]:
    return []


with converter.make_torch_dataloader(data_loader_fn=fit) as numbers:
    print(numbers[0] + 1)
    numbers.nosuch  # type: ignore[attr-defined]
