"""Readers: load row groups, and decode, transform and assemble batches, in the order of a plan.

Worker pools do the work. The names of this package are imported on first use. Importing one of its modules therefore
does not import all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.lazy import late_names

if TYPE_CHECKING:
    from petastore.readers.batch import Batch
    from petastore.readers.mixed_sources import MixedReader
    from petastore.readers.reader import Reader
    from petastore.transforming.transform import TransformSpec, edit_field, transform_schema
    from petastore.work.pools import Workers

__all__ = ["Batch", "MixedReader", "Reader", "TransformSpec", "Workers", "edit_field", "transform_schema"]

_HOMES = {
    "Batch": "petastore.readers.batch",
    "MixedReader": "petastore.readers.mixed_sources",
    "Reader": "petastore.readers.reader",
    "TransformSpec": "petastore.transforming.transform",
    "Workers": "petastore.work.pools",
    "edit_field": "petastore.transforming.transform",
    "transform_schema": "petastore.transforming.transform",
}

__getattr__ = late_names(__name__, _HOMES)
