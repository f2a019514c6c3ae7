"""What Spark cannot write is refused before it does any work."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.codecs import ScalarCodec
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.settings import TIMESTAMP_TYPE
from petastore.spark.writing.writable import check_writable


class Session:
    """What is asked of a session: its configuration."""

    def __init__(self, **conf: str) -> None:
        self.conf = self
        self._conf = {key.replace("_", "."): value for key, value in conf.items()}

    def get(self, key: str, default: str) -> str:
        return self._conf.get(key, default)


def check(*fields: UnischemaField, session_settings: bool = True, session: Any = None) -> None:
    check_writable(session or Session(), Unischema("rows", fields), session_settings=session_settings)


ZONED = UnischemaField("at", "datetime64[us]", (), ScalarCodec("timestamp"))


def test_what_spark_has_types_for_is_written() -> None:
    check(UnischemaField("id", "int64"), UnischemaField("at", "datetime64[us]"), UnischemaField("is_new", "bool"))


def test_a_schema_without_fields_is_refused() -> None:
    with pytest.raises(SchemaError, match="schema 'rows' has no fields"):
        check()


def test_nanoseconds_are_refused() -> None:
    with pytest.raises(SchemaError, match="field 'at' is stored in nanoseconds, and Spark's time stamps are micro"):
        check(UnischemaField("at", "datetime64[ns]"))


def test_names_that_spark_does_not_tell_apart_are_refused_unless_it_does() -> None:
    fields = (UnischemaField("id", "int64"), UnischemaField("ID", "int64"))
    with pytest.raises(SchemaError, match="Spark does not tell the fields 'id' and 'ID' apart"):
        check(*fields)
    check(*fields, session=Session(spark_sql_caseSensitive="true"))


def test_time_stamps_with_a_zone_need_the_sessions_setting() -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"which Spark writes as INT96 unless {TIMESTAMP_TYPE} of the session"
    ):
        check(ZONED, session_settings=False)
    check(ZONED, session_settings=True)
    own = Session(spark_sql_parquet_outputTimestampType="TIMESTAMP_MICROS")
    check(ZONED, session_settings=False, session=own)
