"""The data source `petastore` of Spark: `df.write.format("petastore")` and `spark.read.format("petastore")`.

Importing it loads no pyspark.
"""

from __future__ import annotations

from petastore.spark.source.options import write_options
from petastore.spark.source.register import register_data_source

__all__ = ["register_data_source", "write_options"]
