"""Tests of the schema check for Spark: unsupported schemas raise before Spark starts a job."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.codecs import ScalarCodec
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.schema import Unischema, UnischemaField
from petastore.spark.settings import TIMESTAMP_TYPE
from petastore.spark.writing.writable import check_writable


class Session:
    """A stand-in for a session, with only its configuration."""

    def __init__(self, **conf: str) -> None:
        self.conf = self
        self._conf = {key.replace("_", "."): value for key, value in conf.items()}

    def get(self, key: str, default: str) -> str:
        return self._conf.get(key, default)


def check(*fields: UnischemaField, session_settings: bool = True, session: Any = None) -> None:
    check_writable(session or Session(), Unischema("rows", fields), session_settings=session_settings)


ZONED = UnischemaField("at", "datetime64[us]", (), ScalarCodec("timestamp"))


def test_schema_check_for_spark_accepts_spark_types() -> None:
    check(UnischemaField("id", "int64"), UnischemaField("at", "datetime64[us]"), UnischemaField("is_new", "bool"))


def test_schema_check_for_spark_raises_for_an_empty_schema() -> None:
    with pytest.raises(SchemaError, match="got 'rows' without fields"):
        check()


def test_schema_check_for_spark_raises_for_nanoseconds() -> None:
    with pytest.raises(
        SchemaError, match=r"field 'at' must be stored in microseconds for Spark, got nanoseconds\. Declare it as"
    ):
        check(UnischemaField("at", "datetime64[ns]"))


def test_schema_check_for_spark_raises_for_names_that_differ_only_in_case() -> None:
    fields = (UnischemaField("id", "int64"), UnischemaField("ID", "int64"))
    with pytest.raises(
        SchemaError, match="field names must differ in more than upper and lower case for Spark, got 'id' and 'ID'"
    ):
        check(*fields)
    check(*fields, session=Session(spark_sql_caseSensitive="true"))


def test_timestamps_with_a_zone_require_output_type_timestamp_micros() -> None:
    with pytest.raises(
        InvalidArgumentError, match=f"{TIMESTAMP_TYPE} must be TIMESTAMP_MICROS for field .*Set it in the session"
    ):
        check(ZONED, session_settings=False)
    check(ZONED, session_settings=True)
    own = Session(spark_sql_parquet_outputTimestampType="TIMESTAMP_MICROS")
    check(ZONED, session_settings=False, session=own)
