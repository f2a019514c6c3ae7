"""Local web page that shows a dataset: samples, row groups, statistics, the order of an epoch, a running reader."""

from petastore.view.server import Viewer, serve

__all__ = ["Viewer", "serve"]
