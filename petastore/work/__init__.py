"""Pools: who runs a reader's tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.late_names import late_names
from petastore.work.inline import InlinePool
from petastore.work.pool import Pool, Task
from petastore.work.thread import ThreadPool

if TYPE_CHECKING:
    from petastore.work.process import ProcessPool

__all__ = ["InlinePool", "Pool", "ProcessPool", "Task", "ThreadPool"]

__getattr__ = late_names(__name__, {"ProcessPool": "petastore.work.process"})
