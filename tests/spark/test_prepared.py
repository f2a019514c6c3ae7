"""What cannot be arranged is refused before Spark is asked; what it arranges is in `source/through_spark.py`."""

from __future__ import annotations

from typing import Any

import pytest

from petastore.errors import InvalidArgumentError
from petastore.spark.prepared import prepare_dataframe


class Asked:
    """Stands where a DataFrame does, and notes what is asked of it; its rows are nobody's."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Any]] = []

    def repartition(self, number: int) -> str:
        self.done.append(("repartition", number))
        return "arranged"

    def hint(self, name: str) -> str:
        self.done.append(("hint", name))
        return "arranged"


@pytest.mark.parametrize("files", [0, -1, 2.5, "3", True])
def test_a_number_of_files_that_cannot_be_is_refused(files: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="files"):
        prepare_dataframe(Asked(), files=files)


@pytest.mark.parametrize("shuffle", [1.5, "7", True])
def test_a_seed_that_cannot_be_is_refused(shuffle: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="shuffle"):
        prepare_dataframe(Asked(), shuffle=shuffle)


def test_what_is_no_dataframe_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidArgumentError, match=r"takes a DataFrame of Spark, but \[\{'id': 1\}\] was given"):
        prepare_dataframe([{"id": 1}])


@pytest.mark.parametrize(("files", "done"), [(None, ("hint", "rebalance")), (3, ("repartition", 3))])
def test_without_a_shuffle_spark_decides_by_bytes_or_by_the_number_of_files(files: Any, done: Any) -> None:
    df = Asked()
    assert prepare_dataframe(df, files=files) == "arranged"
    assert df.done == [done]
