"""Run the hello world example in the shared session, and read two splits as one table."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import petastore
from examples.hello_world import write
from petastore import Unischema, UnischemaField


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Return the program's output; its `local_session()` returns the running session."""
    url = (folder / "world").as_uri()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        write.main(url)
    schema = Unischema("splits", [UnischemaField("id", "int64")])
    for split, rows in (("test", 3), ("train", 7)):
        petastore.write_dataset(
            folder / "splits" / f"split={split}", schema, ({"id": number} for number in range(rows))
        )
    table = spark.read.parquet((folder / "splits").as_uri())
    splits = {"rows": table.count(), "test": table.where("split = 'test'").count(), "columns": sorted(table.columns)}
    return {"url": url, "printed": printed.getvalue().splitlines(), "splits": splits}
