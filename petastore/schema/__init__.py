"""What a row is: fields, schemas, the promise of a codec, and the JSON in which they are stored."""

from petastore.schema.codec import Codec
from petastore.schema.field import UnischemaField
from petastore.schema.select import match_unischema_fields
from petastore.schema.unischema import Unischema

__all__ = ["Codec", "Unischema", "UnischemaField", "match_unischema_fields"]
