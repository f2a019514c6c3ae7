"""Horovod's elastic training: a loader that goes on where training stands when ranks come, go or die.

Training with a fixed number of ranks needs nothing of this: `make_reader(cur_shard=hvd.rank(), shard_count=hvd.size())`
and `petastore.adapters.torch.DataLoader` are all.
"""

from __future__ import annotations

from petastore.adapters.horovod.elastic import ElasticDataLoader

__all__ = ["ElasticDataLoader"]
