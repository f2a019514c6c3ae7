"""Local web page that shows a dataset or a running reader.

Its pages are samples, row groups, statistics, the order of an epoch, and metrics of the reader.
"""

from petastore.view.server import Viewer, serve

__all__ = ["Viewer", "serve"]
