"""Tests of `register_data_source`: invalid sessions raise, repeated registration, session settings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.spark import register_data_source
from petastore.spark.settings import batch_settings


@pytest.mark.parametrize("spark", [None, "local[2]", SimpleNamespace(read=None)], ids=str)
def test_register_data_source_raises_for_other_objects(spark: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"spark must be a session of Spark 4 or newer, got "):
        register_data_source(spark)


class Conf:
    """A stand-in for a session's `spark.conf`."""

    def __init__(self, **given: str) -> None:
        self.getAll = given

    def set(self, key: str, value: str) -> None:
        self.getAll[key] = value


def session_of(conf: Conf) -> tuple[Any, list[Any]]:
    known: list[Any] = []
    return SimpleNamespace(dataSource=SimpleNamespace(register=known.append), conf=conf), known


def test_register_data_source_can_be_repeated() -> None:
    session, known = session_of(Conf())
    for _ in range(2):
        register_data_source(session)
    assert [source.name() for source in known] == ["petastore", "petastore"]
    assert session.conf.getAll == batch_settings({})


def test_register_data_source_applies_session_settings_on_request() -> None:
    chosen = dict.fromkeys(batch_settings({}), "1000")
    session, _ = session_of(Conf(**chosen))
    register_data_source(session)
    assert session.conf.getAll == chosen
    session, _ = session_of(Conf())
    register_data_source(session, session_settings=False)
    assert session.conf.getAll == {}
