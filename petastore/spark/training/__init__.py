"""`run_on_dataframe`: train on the Spark executors that compute a DataFrame.

Importing this package does not import pyspark.

```text
run           in the driver: start one barrier stage, and collect the results of its ranks
task          in each task: write rows to the local disk, exchange rows, run the function
spool         rows of one rank on a local disk, as a part of the dataset of all ranks
exchange      sends rows between hosts; `moves` computes how many
trainer       the process that runs the function, with a `LocalRows` as its argument
```
"""

from __future__ import annotations

from petastore.spark.training.run import run_on_dataframe
from petastore.spark.training.spool import LocalRows

__all__ = ["LocalRows", "run_on_dataframe"]
