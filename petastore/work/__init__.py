"""Pools: who runs a reader's tasks."""

from petastore.work.inline import InlinePool
from petastore.work.pool import Pool, Task
from petastore.work.process import ProcessPool
from petastore.work.thread import ThreadPool

__all__ = ["InlinePool", "Pool", "ProcessPool", "Task", "ThreadPool"]
