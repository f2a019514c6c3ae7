"""Tests of global batches for arrays on many devices: unequal batches raise an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.global_batches import refuse_unequal_batches
from petastore.errors import InvalidArgumentError


@pytest.mark.parametrize(("rows", "fits"), [(24, True), (25, False), (20, False), (12, False)])
def test_last_batch_even_works_when_all_batches_are_full(tmp_path: Path, rows: int, fits: bool) -> None:
    schema = petastore.Unischema("Ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(str(tmp_path / "ids"), schema, [{"id": i} for i in range(rows)])
    for rank in range(2):
        asked: Any = {"cur_shard": rank, "shard_count": 2}
        with petastore.make_reader(str(tmp_path / "ids"), **asked) as reader:
            if fits:
                refuse_unequal_batches(reader, 4, parts=1)
            else:
                with pytest.raises(
                    InvalidArgumentError, match=r"last_batch must be 'drop', 'pad' or 'wrap' .*, got 'even'"
                ):
                    refuse_unequal_batches(reader, 4, parts=1)
            with pytest.raises(InvalidArgumentError, match="multiple of 3"):
                refuse_unequal_batches(reader, 4, parts=3)
        for last_batch in ("drop", "pad", "wrap"):
            with petastore.make_reader(str(tmp_path / "ids"), last_batch=last_batch, **asked) as reader:
                refuse_unequal_batches(reader, 4, parts=2)
    with petastore.make_reader(str(tmp_path / "ids")) as reader:
        refuse_unequal_batches(reader, 5, parts=1)  # one rank, one device
