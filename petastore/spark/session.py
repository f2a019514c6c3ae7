"""Start local Spark sessions, classic or Connect.

The module also checks the kind of a session, reports the progress of Spark stages, and finds free ports.

Only this module uses a `SparkContext`, which only classic sessions have; other modules call its functions.

The sessions are for tests, examples and small jobs. You can also use all of `petastore.spark` in a session of your
cluster.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from petastore.errors import InvalidArgumentError, MissingExtraError
from petastore.spark.java import use_java

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

__all__ = ["ActiveStages", "connect_session", "free_port", "local_session", "rdd_of_numbers"]


def start_connect_server(settings: Mapping[str, str]) -> str:
    """Start Spark with a Connect server in this process, unless it already has one.

    The server ends with the process, or with `stop()` of the session. `SparkSession.builder.remote("local[2]")` does
    the same, but always uses port 15002, so that only one server can run on a machine.

    Args:
        settings: Spark's configuration, with `spark.master` and `spark.connect.grpc.binding.port`.

    Returns:
        The port on which the server listens.

    Raises:
        InvalidArgumentError: This process runs classic Spark.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    plugin = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.sql.artifact.isolation.enabled": "true",
        "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
    }
    context = SparkContext.getOrCreate(SparkConf().setAll([*settings.items(), *plugin.items()]))
    port = context.getConf().get("spark.connect.grpc.binding.port")
    if port is None:
        raise InvalidArgumentError(
            "a process must not have a classic Spark session and a Connect session at once, got a classic one. Stop "
            "it with stop() first, or connect from another process"
        )
    SparkSession(context)
    return str(port)


def rdd_of_numbers(spark: SparkSession, numbers: int, partitions: int) -> RDD[int]:
    """Return an RDD of the integers from 0 to `numbers` - 1.

    Args:
        spark: A classic session.
        numbers: Number of elements.
        partitions: Number of partitions.
    """
    return spark.sparkContext.parallelize(range(numbers), partitions)


class ActiveStages:
    """Progress of the Spark stages that begin after this object was created.

    Args:
        spark: A classic session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._older = frozenset(self._tracker.getActiveStageIds())
        self._open: set[int] = set()

    def progress(self) -> list[tuple[int, int, int]]:
        """Return (stage number, finished tasks, all tasks) of each stage in progress.

        A stage that has completed since the previous call is returned a last time.
        """
        self._open.update(number for number in self._tracker.getActiveStageIds() if number not in self._older)
        found = []
        for number in sorted(self._open):
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                found.append((number, stage.numCompletedTasks, stage.numTasks))
            if stage is None or stage.numCompletedTasks >= stage.numTasks:
                self._open.discard(number)
        return found


_LOOPBACK = "127.0.0.1"


def local_session(app_name: str = "petastore", master: str = "local[2]", **conf: str) -> SparkSession:
    """Return a classic Spark session on this machine.

    If this process has a session already, return that session.

    The function finds Java (`petastore.spark.java`); workers run this Python. The session listens on 127.0.0.1 only,
    has no web UI, logs only errors, and uses two shuffle partitions and the time zone UTC. Tables are stored in a
    temporary directory, which is deleted when the process ends.

    Args:
        app_name: Application name in Spark's logs.
        master: `"local[cores]"`, `"local-cluster[workers,cores,MiB]"`, or the URL of a cluster.
        **conf: Spark configuration that overrides these settings: `**{"spark.driver.memory": "2g"}`.

    Raises:
        MissingExtraError: pyspark is not installed.
        JavaNotFoundError: No Java for Spark was found.
    """
    _require_pyspark("local_session")
    use_java()
    _keep_quiet()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in (_local_settings() | conf).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def connect_session(remote: str = "local[2]", **conf: str) -> SparkSession:
    """Return a Spark Connect session.

    The session uses a new server in this process, or a running server. It is like the session of
    `SparkSession.builder.remote(remote)`, but has the settings of `local_session`. A new server listens on a free port,
    so several processes of a machine can each have a server. A process with a classic session cannot open a Connect
    session.

    Args:
        remote: `"local[cores]"` or `"local-cluster[workers,cores,MiB]"` starts a server; `"sc://host:port"` connects to
            a running server.
        **conf: Configuration of the new server.

    Raises:
        MissingExtraError: pyspark or a dependency of its Connect client is not installed.
        JavaNotFoundError: No Java for Spark was found.
        InvalidArgumentError: This process has a classic session, or `conf` was given for a running server.
    """
    _require_pyspark("connect_session")
    _keep_quiet()
    try:
        from pyspark.sql.connect.session import SparkSession as ConnectSession
    except ImportError as problem:
        package = problem.name or "grpcio"
        raise MissingExtraError("connect_session", package=package, extra="spark-connect") from problem
    url = _running_server(remote, conf) if remote.startswith("sc://") else _own_server(remote, conf)
    return ConnectSession.builder.remote(url).getOrCreate()


def _running_server(url: str, conf: Mapping[str, str]) -> str:
    if conf:
        raise InvalidArgumentError(
            f"conf must be empty for the running server {url}, got {', '.join(sorted(conf))}. Set these when the "
            "server is started"
        )
    return url


def _own_server(master: str, conf: Mapping[str, str]) -> str:
    """Start a Spark Connect server in this process, and return its URL."""
    use_java()
    # These are pyspark's own variables: the client reads the token from the first one, and because of the others,
    # `stop()` of the session also stops the server.
    os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    settings = _local_settings() | {
        "spark.app.name": "petastore",
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": str(free_port(_LOOPBACK)),
        **conf,
        "spark.master": master,
    }
    port = start_connect_server(settings)
    os.environ["SPARK_LOCAL_REMOTE"] = os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return f"sc://localhost:{port}"  # with any other host name, the client requires TLS


def _require_pyspark(needed_by: str) -> None:
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtraError(needed_by, package="pyspark", extra="spark") from None


def _local_settings() -> dict[str, str]:
    log_settings = Path(__file__).with_name("quiet-log4j2.properties")
    quiet = f"-Dlog4j2.configurationFile={log_settings.as_uri()}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.driver.extraJavaOptions": quiet,
        "spark.executor.extraJavaOptions": quiet,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": _scratch_directory(),
    }


def _scratch_directory() -> str:
    directory = tempfile.mkdtemp(prefix="petastore-spark-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def free_port(host: str) -> int:
    """Return a port on which no process listens yet.

    Args:
        host: Name or address of this machine.

    Raises:
        OSError: The name or address does not belong to this machine.
    """
    with socket.socket() as found:
        found.bind((host, 0))
        return int(found.getsockname()[1])


def _keep_quiet() -> None:
    """Suppress warnings at the start of Spark: host address and pandas version.

    The address is set to 127.0.0.1, and pandas is not used here.
    """
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
