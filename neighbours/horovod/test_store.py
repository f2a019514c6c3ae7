"""Tests of the store for Horovod's estimators: it never loads Horovod's pickled metadata."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neighbours.conftest import UNEVEN


class Noticed:
    """Creates a directory when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


# Horovod accesses columns by a deprecated method of Arrow.
@pytest.mark.filterwarnings("ignore:The 'field_by_name' method is deprecated:FutureWarning")
def test_horovod_store_neither_loads_nor_writes_pickles(numbered: Callable[..., str], tmp_path: Path) -> None:
    from horovod.runner.common.util import codec
    from horovod.spark.common import util
    from horovod.spark.common.store import FilesystemStore

    from petastore.interop.horovod_spark.store import PetastoreStore

    store = PetastoreStore(str(tmp_path / "runs"), train_path=numbered(), val_path=numbered([3], "val"))
    noticed = tmp_path / "noticed"
    data = [store.get_train_data_path(), store.get_val_data_path()]
    beside = [Path(FilesystemStore.get_data_metadata_path(store, path)) for path in data]
    below = [Path(store.get_data_metadata_path(path)) for path in data]
    for path in beside + below:
        path.write_text(codec.dumps_base64(Noticed(noticed)), encoding="utf-8")
    planted = beside[0].read_bytes()
    rows, val_rows, columns, _ = util.get_simple_meta_from_parquet(store, ["y"], ["id", "x"], None)
    assert not noticed.exists()
    assert (rows, val_rows, sorted(columns)) == (sum(UNEVEN), 3, ["id", "x", "y"])
    assert [path.read_bytes() for path in beside] == [planted] * 2
    assert planted not in [path.read_bytes() for path in below]
    assert {path.parent for path in below} == {tmp_path / "runs"}

    # The control: Horovod's own function loads the pickle.
    with pytest.raises(TypeError):
        util._load_metadata_from_fs(store.fs, str(beside[0]))
    assert noticed.exists()
