"""Mixtures of readers."""

from __future__ import annotations

from petastore import WeightedSamplingReader, make_mixed_reader, make_reader, open_dataset

make_mixed_reader(["a", open_dataset("b"), {"dataset_url": "c", "filters": [("id", ">", 7)]}], [1, 2.5, 3])
make_mixed_reader([{"dataset_url": "a", "filter": None}], [1])  # type: ignore[list-item]
make_mixed_reader([{"filters": None}], [1])  # type: ignore[list-item]
readers = [make_reader("a"), make_reader("b")]
WeightedSamplingReader(readers, [0.5, 0.5], batching="per_source")
WeightedSamplingReader(readers, [0.5, 0.5], batching="apart")  # type: ignore[arg-type]
WeightedSamplingReader(["a", "b"], [0.5, 0.5])  # type: ignore[list-item]
