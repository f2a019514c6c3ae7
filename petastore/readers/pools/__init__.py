"""Pools: who runs a reader's tasks."""

from petastore.readers.pools.inline import InlinePool
from petastore.readers.pools.pool import Pool, Task
from petastore.readers.pools.process import ProcessPool
from petastore.readers.pools.thread import ThreadPool

__all__ = ["InlinePool", "Pool", "ProcessPool", "Task", "ThreadPool"]
