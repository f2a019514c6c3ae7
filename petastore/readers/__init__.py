"""How a plan is run: fetch, decode, transform, assemble, by pools and in plan order.

Names are loaded on first use: worker processes for transforms import some of the modules in here, and no pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from petastore.late_names import late_names

if TYPE_CHECKING:
    from petastore.readers.batch import Batch
    from petastore.readers.mixed.mixed_reader import MixedReader
    from petastore.readers.reader import Reader
    from petastore.transforming.transform import TransformSpec, edit_field, transform_schema
    from petastore.work.workers import Workers

__all__ = ["Batch", "MixedReader", "Reader", "TransformSpec", "Workers", "edit_field", "transform_schema"]

_HOMES = {
    "Batch": "petastore.readers.batch",
    "MixedReader": "petastore.readers.mixed.mixed_reader",
    "Reader": "petastore.readers.reader",
    "TransformSpec": "petastore.transforming.transform",
    "Workers": "petastore.work.workers",
    "edit_field": "petastore.transforming.transform",
    "transform_schema": "petastore.transforming.transform",
}

__getattr__ = late_names(__name__, _HOMES)
