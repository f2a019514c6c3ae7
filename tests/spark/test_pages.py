"""Tests of the documentation pages that need Spark: their Python blocks run in the shared session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation import name_of, pages_with
from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("page", pages_with("spark"), ids=name_of)
def test_python_blocks_of_spark_pages_run(page: Path, spark_programs: SparkPrograms) -> None:
    problem = spark_programs.left("classic", "pages").facts[name_of(page)]
    assert not problem, problem
