"""The data source is made known to a session that can have it, and to nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from petastore.errors import RequestError
from petastore.spark.source.register import register_data_source


@pytest.mark.parametrize("spark", [None, "local[2]", SimpleNamespace(read=None)], ids=str)
def test_what_is_no_session_or_an_old_one_is_refused(spark: Any) -> None:
    with pytest.raises(RequestError, match=r"takes a session of Spark 4 or newer, but .* was given"):
        register_data_source(spark)


def test_a_session_knows_it_by_its_name_and_may_be_told_again() -> None:
    known: list[Any] = []
    session = SimpleNamespace(dataSource=SimpleNamespace(register=known.append))
    for _ in range(2):
        register_data_source(session)
    assert [source.name() for source in known] == ["petastore", "petastore"]
