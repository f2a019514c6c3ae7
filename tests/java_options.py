"""JVM options for all Spark sessions that tests start, so that short sessions start quickly.

A JVM loads and verifies thousands of Spark's classes at each start, which takes half of its CPU time. `make setup` runs
`python -m tests.java_options` once, which writes them to a class data sharing (CDS) archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import MutableMapping
from pathlib import Path

__all__ = ["KEPT_CLASSES", "tell_java"]

KEPT_CLASSES = Path(sys.prefix) / "classes-of-spark.jsa"
"""CDS archive for the JVM and the jars of this environment; any other JVM silently ignores it."""

_VARIABLE = "JDK_JAVA_OPTIONS"
# The C2 compiler and the G1 garbage collector take half of the CPU time of such sessions.
_MODEST = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# A JVM whose classes differ from the archived ones would print a warning in each session.
_QUIET = "-Xlog:disable -Xlog:all=off"
_USES_MUCH_OF_SPARK = """
import importlib.util, sys, tempfile
from petastore.spark import connect_session, local_session

def same(batches):
    yield from batches

keep = f'-Xlog:disable "-XX:ArchiveClassesAtExit={sys.argv[1]}"'
start = connect_session if importlib.util.find_spec("grpc_status") else local_session
spark = start(**{"spark.driver.extraJavaOptions": keep})
with tempfile.TemporaryDirectory() as folder:
    columns = ["id", "string(id) as text", "array(double(id)) as xs", "id % 7 as part"]
    numbers = spark.range(0, 100, 1, 2).selectExpr(*columns)
    numbers.mapInArrow(same, numbers.schema).write.partitionBy("part").parquet(folder + "/numbers")
    read = spark.read.parquet(folder + "/numbers").where("part > 1")
    assert read.groupBy("part").count().orderBy("part").repartition(3).count() == 5
    assert read.join(numbers, "id").count() > 0
spark.stop()
"""


def tell_java(environment: MutableMapping[str, str], classes: Path = KEPT_CLASSES) -> None:
    """Set the JVM options of tests in an environment, unless the user has set some."""
    shared = f'"-XX:SharedArchiveFile={classes}" {_QUIET}' if classes.exists() else ""
    environment.setdefault(_VARIABLE, f"{_MODEST} {shared}".strip())


def keep_classes(classes: Path = KEPT_CLASSES) -> bool:
    """Write the archive of the classes that a Spark session loads; return whether the JVM could."""
    classes.unlink(missing_ok=True)
    # Output is captured until the JVM exits, because it writes the archive at its exit.
    ran = subprocess.run(
        [sys.executable, "-c", _USES_MUCH_OF_SPARK, str(classes)],
        env=os.environ | {_VARIABLE: _MODEST},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        sys.stderr.write(ran.stderr)
    return ran.returncode == 0 and classes.exists()


if __name__ == "__main__":
    if not keep_classes():
        sys.stdout.write("setup: this Java keeps no classes of Spark; its sessions begin a little later\n")
