"""What petastore does for code and data that were made for other libraries."""

from petastore.interop.migration import Migration, migrate
from petastore.interop.petastorm_export import Export, export

__all__ = ["Export", "Migration", "export", "migrate"]
