"""Train deep models straight from Parquet.

This package exports the most used names and loads each on first use: `import petastore` loads no framework and starts
no thread. Import codecs, adapters, Spark functions and testing utilities from their modules: `petastore.codecs`,
`petastore.adapters.torch`, `petastore.adapters.tensorflow`, `petastore.distributed`, `petastore.spark`,
`petastore.testing`.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from petastore.dataset import Dataset, open_dataset
    from petastore.errors import NoDataAvailableError, PetastoreError
    from petastore.expressions import col
    from petastore.front import make_batch_reader, make_mixed_reader, make_reader
    from petastore.plan import Plan
    from petastore.plan.windows.ngram import NGram
    from petastore.readers import Batch, Reader, TransformSpec
    from petastore.readers.mixed_sources import WeightedSamplingReader
    from petastore.schema import Unischema, UnischemaField
    from petastore.selecting.filter import select_rows
    from petastore.spark import dict_to_spark_row, encode_dataframe, materialize_dataset
    from petastore.verification.verify import verify
    from petastore.writers.input_columns import infer_schema
    from petastore.writers.local import write_dataset

__version__ = "0.1.0.dev0"

__all__ = [
    "Batch",
    "Dataset",
    "NGram",
    "NoDataAvailableError",
    "PetastoreError",
    "Plan",
    "Reader",
    "TransformSpec",
    "Unischema",
    "UnischemaField",
    "WeightedSamplingReader",
    "col",
    "dict_to_spark_row",
    "encode_dataframe",
    "infer_schema",
    "make_batch_reader",
    "make_mixed_reader",
    "make_reader",
    "materialize_dataset",
    "open_dataset",
    "select_rows",
    "verify",
    "write_dataset",
]

_HOMES = {
    "Batch": "petastore.readers",
    "Dataset": "petastore.dataset",
    "NGram": "petastore.plan.windows.ngram",
    "NoDataAvailableError": "petastore.errors",
    "PetastoreError": "petastore.errors",
    "Plan": "petastore.plan",
    "Reader": "petastore.readers",
    "TransformSpec": "petastore.readers",
    "Unischema": "petastore.schema",
    "UnischemaField": "petastore.schema",
    "WeightedSamplingReader": "petastore.readers.mixed_sources",
    "col": "petastore.expressions",
    "dict_to_spark_row": "petastore.spark",
    "encode_dataframe": "petastore.spark",
    "infer_schema": "petastore.writers.input_columns",
    "make_batch_reader": "petastore.front",
    "make_mixed_reader": "petastore.front",
    "make_reader": "petastore.front",
    "materialize_dataset": "petastore.spark",
    "open_dataset": "petastore.dataset",
    "select_rows": "petastore.selecting.filter",
    "verify": "petastore.verification.verify",
    "write_dataset": "petastore.writers.local",
}


def __getattr__(name: str) -> Any:
    from petastore.lazy import late_names  # imported here, so that `import petastore` loads no other module

    return late_names(__name__, _HOMES)(name)


def __dir__() -> list[str]:
    return sorted(__all__)


class _PetastormsModules:
    """Import finder for Petastorm's module names, such as `petastore.unischema`.

    It returns the petastore objects under Petastorm's names. It is the last finder, so petastore's own modules come
    first.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if not name.startswith("petastore."):
            return None
        modules = importlib.import_module("petastore.interop.petastorm")
        return modules.LegacyModules("petastore").find_spec(name, path, target)


sys.meta_path.append(_PetastormsModules)
