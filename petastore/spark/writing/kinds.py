"""Whether a DataFrame holds stored cells or raw columns, by the types of its columns and by nothing else."""

from __future__ import annotations

from typing import Any

from petastore.errors import RequestError
from petastore.schema import Unischema

__all__ = ["holds_cells"]


def holds_cells(spark_schema: Any, schema: Unischema) -> bool:
    """Whether the columns are stored cells, or may be, rather than raw values.

    Bytes where cells are bytes may be either. They are cells, unless other columns can only be raw values.

    Args:
        spark_schema: The `StructType` of a DataFrame.
        schema: What its rows are to be.

    Raises:
        RequestError: Some columns can only be raw values, and others could be either.
    """
    stored = {field.name: field.dataType.simpleString() for field in schema.as_spark_schema().fields}
    found = {field.name: field.dataType.simpleString() for field in spark_schema.fields}
    if found == stored:
        return True
    in_bytes = [name for name in found if stored.get(name) == "binary" and schema[name].shape]
    either = [name for name in in_bytes if found[name] == "binary"]
    raw = [name for name in in_bytes if found[name] != "binary"]
    if either and raw:
        raise RequestError(
            f"the columns {', '.join(map(repr, raw))} can only be raw values, and {', '.join(map(repr, either))}, being"
            " bytes, could be cells as well; write_columns takes all of them for raw values"
        )
    return bool(either)
