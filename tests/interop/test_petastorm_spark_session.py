"""Arguments of the command line reach the builder of a Spark session."""

from __future__ import annotations

import argparse

import pytest

from petastore.errors import InvalidArgumentError
from petastore.interop.petastorm_spark_session import add_configure_spark_arguments, configure_spark


class Builder:
    """Writes down what it is told, as Spark's does."""

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


def test_a_master_and_configurations_are_told() -> None:
    given = ["--master", "local[2]", "--spark-session-config", "a.b=1", "c.d=x=y"]
    assert told(*given) == [("a.b", "1"), ("c.d", "x=y"), ("local[2]",)]
    assert told() == []


def test_what_is_no_pair_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"takes key=value pairs, but 'a\.b'"):
        told("--spark-session-config", "a.b")


def test_arguments_of_another_parser_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="call add_configure_spark_arguments"):
        configure_spark(Builder(), argparse.Namespace())
