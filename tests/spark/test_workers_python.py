"""Tests of the warning about workers whose Python does not have petastore, in a real session."""

from __future__ import annotations

import pytest

from tests.spark.programs import SparkPrograms

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_materialize_dataset_warns_of_a_python_without_petastore(spark_programs: SparkPrograms) -> None:
    facts = spark_programs.left("classic", "workers_python").facts
    ((at_the_caller, message),) = facts["warned"]
    assert at_the_caller
    assert facts["without"] in message
    assert facts["this"] in message
    assert [facts[name] for name in ("unset", "no", "with")] == [[], [], []]
