"""Fixtures of the Spark tests: one program per kind of session, shared by all files of a pytest worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.programs import SparkPrograms


@pytest.fixture(scope="session")
def spark_programs(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> SparkPrograms:
    """Return the programs of all kinds of sessions; each one runs when a test first needs it."""
    return SparkPrograms(tmp_path_factory, repository)
