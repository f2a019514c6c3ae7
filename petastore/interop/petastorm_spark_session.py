"""Command-line arguments of programs that make a Spark session, as Petastorm's tools have them."""

from __future__ import annotations

import argparse
from typing import Any

from petastore.errors import InvalidArgumentError

__all__ = ["add_configure_spark_arguments", "configure_spark"]


def add_configure_spark_arguments(argparser: argparse.ArgumentParser) -> None:
    """Add `--master URL` and `--spark-session-config KEY=VALUE …`, which `configure_spark` reads."""
    argparser.add_argument("--master", metavar="URL", help="Spark's master, such as local[4]; Spark's own by default")
    argparser.add_argument(
        "--spark-session-config",
        metavar="KEY=VALUE",
        nargs="+",
        help="configuration of the session, such as spark.executor.memory=10g",
    )


def configure_spark(spark_session_builder: Any, args: argparse.Namespace) -> Any:
    """What the arguments say, put into a `SparkSession.builder`.

    Returns:
        The builder that was given.

    Raises:
        InvalidArgumentError: A configuration is not `KEY=VALUE`, or the arguments are of another parser.

    Example:
        >>> class Builder(dict):
        ...     def config(self, key, value):
        ...         self[key] = value
        >>> parser = argparse.ArgumentParser()
        >>> add_configure_spark_arguments(parser)
        >>> configure_spark(Builder(), parser.parse_args(["--spark-session-config", "spark.sql.ansi.enabled=true"]))
        {'spark.sql.ansi.enabled': 'true'}
    """
    if "master" not in args or "spark_session_config" not in args:
        raise InvalidArgumentError(
            "the arguments have no --master; call add_configure_spark_arguments(parser) before parsing"
        )
    for pair in args.spark_session_config or ():
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise InvalidArgumentError(f"--spark-session-config takes key=value pairs, but {pair!r} was given")
        spark_session_builder.config(key, value)
    if args.master:
        spark_session_builder.master(args.master)
    return spark_session_builder
