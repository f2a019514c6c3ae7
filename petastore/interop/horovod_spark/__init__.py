"""What Horovod's estimators for Spark take for data: data modules, and a store. Importing loads neither of them.

```python
from horovod.spark.torch import TorchEstimator
from petastore.interop.horovod_spark.store import PetastoreStore
from petastore.interop.horovod_spark.torch import PetastoreDataModule

estimator = TorchEstimator(
    num_proc=2, store=PetastoreStore("/data/runs", train_path="/data/digits"),
    data_module=PetastoreDataModule, ...
)
```

`torch`, `keras` and `lightning` are the modules for the estimator of each; `asked` is what all of them are given.
"""
