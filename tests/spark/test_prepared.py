"""Tests of `prepare_dataframe` without Spark: invalid arguments raise; `through_spark.py` tests the results."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.spark.prepared import prepare_dataframe


class Asked:
    """A stand-in for a DataFrame that records the calls of its methods."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    def repartition(self, number: int) -> str:
        self.done.append(("repartition", number))
        return "arranged"

    def hint(self, name: str) -> str:
        self.done.append(("hint", name))
        return "arranged"


@pytest.mark.parametrize("files", [0, -1, 2.5, "3", True])
def test_prepare_dataframe_raises_for_invalid_files(files: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="files"):
        prepare_dataframe(Asked(), files=files)


@pytest.mark.parametrize("shuffle", [1.5, "7", True])
def test_prepare_dataframe_raises_for_an_invalid_seed(shuffle: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="shuffle"):
        prepare_dataframe(Asked(), shuffle=shuffle)


def test_prepare_dataframe_raises_for_other_objects() -> None:
    with pytest.raises(InvalidArgumentError, match=r"df must be a Spark DataFrame, got \[\{'id': 1\}\]"):
        prepare_dataframe([{"id": 1}])


@pytest.mark.parametrize(("files", "done"), [(None, ("hint", "rebalance")), (3, ("repartition", 3))])
def test_prepare_dataframe_without_shuffle_rebalances_or_repartitions(files: Any, done: Any) -> None:
    df = Asked()
    assert prepare_dataframe(df, files=files) == "arranged"
    assert df.done == [done]
