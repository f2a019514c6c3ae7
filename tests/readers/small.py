"""Small dataset with a field of each storage form, its plan, and the execution of its reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import petastore
from petastore import Unischema, UnischemaField, open_dataset
from petastore.codecs import NdarrayCodec
from petastore.dataset import Dataset
from petastore.plan import Plan
from petastore.plan.request import OrderOptions, PlanOptions
from petastore.readers.execution.building import build_execution
from petastore.readers.execution.execution import Execution
from petastore.work.pools import Workers

__all__ = ["ROWS", "SCHEMA", "a_row", "execution_of", "plan_of", "written"]

ROWS = 23
SCHEMA = Unischema(
    "small",
    [
        UnischemaField("id", np.int64),
        UnischemaField("x", np.float32),
        UnischemaField("maybe", np.float32, nullable=True),
        UnischemaField("pair", np.int16, (2,), NdarrayCodec()),
        UnischemaField("free", np.int16, (None,), NdarrayCodec()),
        UnischemaField("word", np.str_, nullable=True),
    ],
)


def a_row(number: int) -> dict[str, Any]:
    """Return the row with this number."""
    return {
        "id": number,
        "x": np.float32(number / 2),
        "maybe": None if number % 3 == 0 else np.float32(number),
        "pair": np.array([number, -number], np.int16),
        "free": np.arange(number % 4, dtype=np.int16),
        "word": None if number % 5 == 0 else f"w{number}",
    }


def written(folder: Path) -> Dataset:
    """Write the dataset: 23 rows in row groups of five."""
    petastore.write_dataset(str(folder), SCHEMA, map(a_row, range(ROWS)), rows_per_row_group=5)
    return open_dataset(str(folder))


def plan_of(dataset: Dataset, **asked: Any) -> Plan:
    """Return the plan of a dataset, in file order by default."""
    order = asked.pop("order", OrderOptions(shuffle_row_groups=False))
    return dataset.planned(PlanOptions(order=order, **asked))


def execution_of(dataset: Dataset, *, workers: Workers | None = None, batched: bool = False, **asked: Any) -> Execution:
    """Return the execution of a reader of the dataset's rows."""
    return build_execution(dataset, plan_of(dataset, **asked), workers=workers or Workers("dummy"), batched=batched)
