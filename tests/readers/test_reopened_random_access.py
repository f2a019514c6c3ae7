"""Tests of datasets in forked children: the same data, through a filesystem client of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest

import petastore
from petastore.readers.random_access import RandomAccess, reopened


class OurHandler(pyarrow.fs.FSSpecHandler):  # type: ignore[misc]
    """A user-defined filesystem that cannot be copied."""

    def get_type_name(self) -> str:
        return "ours"

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("a user's filesystem is left as it is")


@pytest.mark.parametrize("kind", ["local", "fsspec", "ours"])
def test_dataset_reopened_after_a_fork_has_its_own_filesystem_client(tmp_path: Path, kind: str) -> None:
    url, filesystem = str(tmp_path / "data"), None
    if kind == "fsspec":
        url = f"memory://{tmp_path}"
    elif kind == "ours":
        filesystem = pyarrow.fs.PyFileSystem(OurHandler(fsspec.filesystem("file")))
    schema = petastore.Unischema("row", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(url, schema, [{"id": i} for i in (1, 2, 3)], filesystem=filesystem)
    dataset = petastore.open_dataset(url, filesystem=filesystem)
    again = reopened(dataset)
    assert again == dataset or kind == "fsspec"
    assert again.inventory == dataset.inventory
    assert again.footers is not dataset.footers
    assert (again.location.filesystem is not dataset.location.filesystem) == (kind == "fsspec")
    assert RandomAccess(again).take([2, 0])["id"].tolist() == [3, 1]
