"""Spark sessions for one machine that start without set-up and stay quiet: classic, and over Spark Connect.

For tests, examples and small jobs. A session from your cluster serves everything in `petastore.spark` as well.
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
    from pyspark.sql import SparkSession

__all__ = ["connect_session", "local_session"]

_LOOPBACK = "127.0.0.1"


def local_session(app_name: str = "petastore", master: str = "local[2]", **conf: str) -> SparkSession:
    """A classic Spark session on this machine, or the one that this process has already.

    Finds Java (`petastore.spark.java`), lets the workers run this Python, listens on 127.0.0.1 only, starts no web
    page, logs errors only, uses two shuffle partitions and UTC, and keeps tables in a temporary directory that is
    removed when the process ends.

    Args:
        app_name: Name of the application in Spark's own records.
        master: `"local[cores]"`, `"local-cluster[workers,cores,MiB]"`, or the URL of a cluster.
        **conf: Spark's configuration, over the settings above: `**{"spark.driver.memory": "2g"}`.

    Raises:
        MissingExtraError: pyspark is not installed.
        JavaNotFoundError: There is no Java that Spark runs on.
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
    """A Spark Connect session: to a server started in this process, or to one that runs already.

    The same as `SparkSession.builder.remote(remote)`, with the settings of `local_session` and on a free port, so that
    several processes of one machine can have a server each. A process that has a classic session cannot have a Connect
    session too.

    Args:
        remote: `"local[cores]"` or `"local-cluster[workers,cores,MiB]"` starts a server; `"sc://host:port"` connects.
        **conf: Configuration of the server that is started.

    Raises:
        MissingExtraError: pyspark, or what its Connect client needs, is not installed.
        JavaNotFoundError: There is no Java that Spark runs on.
        InvalidArgumentError: This process has a classic session, or `conf` was given for a server that runs already.
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
        raise InvalidArgumentError(f"{url} runs already, so {', '.join(sorted(conf))} cannot be set at its start")
    return url


def _own_server(master: str, conf: Mapping[str, str]) -> str:
    """Start a server in this process; returns its URL."""
    from petastore.spark.classic import start_connect_server

    use_java()
    # pyspark's own names: the client takes the token from here, and `stop()` of the session then stops the server.
    os.environ.setdefault("SPARK_CONNECT_AUTHENTICATE_TOKEN", secrets.token_hex(16))
    settings = _local_settings() | {
        "spark.app.name": "petastore",
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": str(_free_port()),
        **conf,
        "spark.master": master,
    }
    port = start_connect_server(settings)
    os.environ["SPARK_LOCAL_REMOTE"] = os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    return f"sc://localhost:{port}"  # any other name would ask for TLS


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _keep_quiet() -> None:
    """No word from pyspark about the version of pandas, now or later: nothing here goes through pandas."""
    os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
