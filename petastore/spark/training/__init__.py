"""Training on the Spark executors that compute a DataFrame: `run_on_dataframe`. Importing loads no pyspark.

```text
run           in the driver: start one barrier stage, and collect the results of its ranks
task          in each task: write rows to the local disk, exchange rows, run the function
spool         rows on a local disk, as a part of a dataset of all ranks
exchange      sends rows between hosts; `moves` computes which rows
trainer       the process that runs the function, with `local_rows` as its argument
```
"""

from __future__ import annotations

from petastore.spark.training.run import run_on_dataframe
from petastore.spark.training.spool import LocalRows

__all__ = ["LocalRows", "run_on_dataframe"]
