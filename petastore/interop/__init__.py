"""Interoperability with Petastorm, Horovod, BigDL Orca and TensorFlowOnSpark."""

from petastore.interop.migration import Migration, migrate
from petastore.interop.petastorm_export import Export, export

__all__ = ["Export", "Migration", "export", "migrate"]
