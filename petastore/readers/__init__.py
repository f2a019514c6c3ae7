"""How a plan is run: fetch, decode, transform, assemble, by pools and in plan order."""

from petastore.readers.batch import Batch
from petastore.readers.mixed import MixedReader
from petastore.readers.options import Workers
from petastore.readers.reader import Reader
from petastore.readers.transform import TransformSpec, edit_field, transform_schema

__all__ = ["Batch", "MixedReader", "Reader", "TransformSpec", "Workers", "edit_field", "transform_schema"]
