"""`all_gather`s under the name that they had first; they live in `petastore.distributed`."""

from __future__ import annotations

from petastore.distributed.gathering import horovod_all_gather, torch_all_gather

__all__ = ["horovod_all_gather", "torch_all_gather"]
