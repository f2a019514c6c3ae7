"""Rates of readers on this machine: measure one setting, or find the fastest one."""

from __future__ import annotations

from petastore.tuning.race import Tried, Tuned
from petastore.tuning.throughput import Memory, Throughput, reader_throughput
from petastore.tuning.trials import tune

__all__ = ["Memory", "Throughput", "Tried", "Tuned", "reader_throughput", "tune"]
