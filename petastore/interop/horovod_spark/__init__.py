"""Data modules and a store for Horovod's Spark estimators.

Importing this package does not import Horovod or Spark.

```python
from horovod.spark.torch import TorchEstimator
from petastore.interop.horovod_spark.store import PetastoreStore
from petastore.interop.horovod_spark.torch import PetastoreDataModule

estimator = TorchEstimator(
    num_proc=2, store=PetastoreStore("/data/runs", train_path="/data/digits"),
    data_module=PetastoreDataModule, ...
)
```

The modules `torch`, `keras` and `lightning` have the data module for the estimator of each framework; `data_module` has
their base class.
"""
