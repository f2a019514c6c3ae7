"""Training on the executors that compute a DataFrame: `run_on_dataframe`. Importing loads no pyspark.

```text
run           in the driver: one barrier stage, and what its ranks gave
task          in each task: rows to the local disk, equal parts, then the function
spool         rows on a local disk, as a part of a dataset of all ranks
exchange      rows that go from host to host; `moves` says which
trainer       the process that runs the function, `messages` with it, and `local_rows`, what the function is given
```
"""

from __future__ import annotations

from petastore.spark.training.local_rows import LocalRows
from petastore.spark.training.run import run_on_dataframe

__all__ = ["LocalRows", "run_on_dataframe"]
