"""Run `petastore copy`, which starts and stops its own Spark session; `test_copy_command.py` checks the facts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import petastore
from petastore import Unischema, UnischemaField
from petastore.cli.commands import app


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Copy one column of the rows whose name is not null."""
    schema = Unischema("user", [UnischemaField("id", "int64"), UnischemaField("name", str, nullable=True)])
    rows = [{"id": n, "name": f"user {n}" if n % 2 else None} for n in range(10)]
    petastore.write_dataset(folder / "users", schema, rows)
    options = ["--field-regex", "i.", "--not-null-fields", "name", "--partition-count", "1", "--row-group-size-mb", "1"]
    options += ["--spark-session-config", "spark.sql.shuffle.partitions=1"]
    ran = CliRunner().invoke(app, ["copy", str(folder / "users"), str(folder / "copy"), *options])
    return {"code": ran.exit_code, "stdout": ran.stdout, "stderr": ran.stderr}
