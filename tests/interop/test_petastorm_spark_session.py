"""Tests of `configure_spark`: command-line arguments are passed to the builder of a Spark session."""

from __future__ import annotations

import argparse

import pytest

from petastore.errors import InvalidArgumentError
from petastore.interop.petastorm_calls import add_configure_spark_arguments, configure_spark


class Builder:
    """Records calls of Spark's session builder."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def config(self, key: str, value: str) -> None:
        self.told.append((key, value))

    def master(self, url: str) -> None:
        self.told.append((url,))


def told(*arguments: str) -> list[tuple[str, ...]]:
    parser = argparse.ArgumentParser()
    add_configure_spark_arguments(parser)
    builder = Builder()
    assert configure_spark(builder, parser.parse_args(arguments)) is builder
    return builder.told


def test_spark_session_cli_configures_master_and_options() -> None:
    given = ["--master", "local[2]", "--spark-session-config", "a.b=1", "c.d=x=y"]
    assert told(*given) == [("a.b", "1"), ("c.d", "x=y"), ("local[2]",)]
    assert told() == []


def test_spark_session_cli_raises_for_invalid_pairs() -> None:
    with pytest.raises(InvalidArgumentError, match=r"--spark-session-config must be key=value pairs, got 'a\.b'"):
        told("--spark-session-config", "a.b")


def test_spark_session_cli_raises_for_arguments_of_another_parser() -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r"args must have master and spark_session_config\. Call add_configure_spark_arguments",
    ):
        configure_spark(Builder(), argparse.Namespace())
