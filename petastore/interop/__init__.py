"""What petastore does for code and data that were made for other libraries."""

from petastore.interop.export import Export, export
from petastore.interop.migrate import Migration, migrate

__all__ = ["Export", "Migration", "export", "migrate"]
