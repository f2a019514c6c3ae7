"""Open more Connect sessions in a process after the first session was stopped; `test_session.py` checks the facts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from petastore.spark import connect_session
from tests.spark.scenario import Scenario


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Start two sessions with one server, then one by pyspark itself, which also writes."""
    from pyspark.sql import SparkSession

    first, second = (connect_session("local[1]") for _ in range(2))
    counts = [first.range(3).count(), second.range(3).count()]
    first.stop()
    # In tests, pyspark puts the server of `remote("local[2]")` on a free port instead of 15002.
    os.environ["SPARK_TESTING"] = "1"
    own = SparkSession.builder.remote("local[2]").getOrCreate()
    facts = Scenario(own, folder).write_everything()
    own.stop()
    return {"counts": counts, "session": type(own).__module__, "write_everything": facts}
