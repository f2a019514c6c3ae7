"""Tests of the Horovod adapter without Horovod installed; `neighbours/horovod` tests it with Horovod."""

from __future__ import annotations

import sys

import pytest

import petastore
from petastore.adapters.horovod import ElasticDataLoader
from petastore.errors import InvalidArgumentError


def test_elastic_loader_without_horovod_names_the_missing_package(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "horovod", None)
    petastore.write_dataset(f"{tmp_path}/numbers", {"id": [1, 2, 3]})
    with (
        petastore.make_reader(f"{tmp_path}/numbers") as reader,
        pytest.raises(InvalidArgumentError, match="needs Horovod built with torch"),
    ):
        ElasticDataLoader(reader, batch_size=2)
