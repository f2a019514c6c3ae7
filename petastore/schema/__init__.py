"""Schemas: fields, codec interfaces, and the JSON document of a schema."""

from petastore.schema.field import Codec, UnischemaField
from petastore.schema.select import match_unischema_fields
from petastore.schema.unischema import Unischema

__all__ = ["Codec", "Unischema", "UnischemaField", "match_unischema_fields"]
