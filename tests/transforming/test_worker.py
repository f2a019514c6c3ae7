"""Tests of pickling between a reader and a worker process: functions, closures, exceptions with tracebacks."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from petastore import Unischema, UnischemaField
from petastore.errors import TransformError
from petastore.transforming.transform import TransformSpec
from petastore.transforming.worker import Failure, Function, packed, unpacked

SCHEMA = Unischema("number", [UnischemaField("id", np.int64)])
TABLE = np.arange(10_000)


def looked_up(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": TABLE[row["id"]]}


def test_transform_functions_pickled_for_a_worker_behave_the_same() -> None:
    columns = TransformSpec(looked_up, removed_fields=["x"], takes="columns")
    sent = [Function(columns, SCHEMA, True, {"at": "UTC"}), Function(TransformSpec(dict), SCHEMA, False)]
    found = unpacked(packed(sent))
    assert [(one.schema, one.batched, one.spec.takes, dict(one.zones)) for one in found] == [
        (SCHEMA, True, "columns", {"at": "UTC"}),
        (SCHEMA, False, None, {}),
    ]
    assert found[0].spec.func is not None
    assert found[0].spec.func({"id": 7}) == {"id": 7}
    assert found[1].spec.func is dict


def test_large_arrays_of_closures_are_pickled_out_of_band() -> None:
    table = np.arange(100_000)
    setup = packed([Function(TransformSpec(lambda row: {"id": table[row["id"]]}), SCHEMA, False)])
    assert len(setup[0]) < 10_000
    func = unpacked(setup)[0].spec.func
    assert func is not None
    assert func({"id": 7}) == {"id": 7}


class TwoArgumentsError(Exception):
    """An exception that pickle cannot recreate from its arguments."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def raised(problem: BaseException, cause: BaseException | None = None) -> Failure:
    try:
        raise problem from cause
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        return Failure.of(caught)


def test_exception_keeps_its_cause_and_the_traceback_of_the_worker() -> None:
    found = raised(ValueError("no such word"), KeyError("word")).error("worker process 3")
    assert (type(found), str(found)) == (ValueError, "no such word")
    assert isinstance(found.__cause__, KeyError)
    assert found.__notes__[0].startswith("In worker process 3:\nKeyError: 'word'")
    assert "raise problem from cause" in found.__notes__[0]


@pytest.mark.parametrize("problem", [TwoArgumentsError(1, 2), ValueError(threading.Lock())], ids=["arguments", "lock"])
def test_unpicklable_exception_becomes_a_transform_error(problem: Exception) -> None:
    failure = raised(problem)
    assert failure.problem is None
    found = failure.error("worker process 0")
    assert type(found) is TransformError
    assert str(found) == f"{type(problem).__name__}: {problem}"


def test_unpicklable_exception_cause_is_dropped() -> None:
    found = raised(ValueError("outer"), TwoArgumentsError(1, 2)).error("worker process 0")
    assert (str(found), found.__cause__) == ("outer", None)
    assert "1 and 2" in found.__notes__[0]
