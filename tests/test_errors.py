"""Tests of petastore's exceptions: all derive from PetastoreError, and pickling keeps message, location and errno."""

from __future__ import annotations

import errno
import inspect
import pickle
from typing import Any

import pytest

from petastore import errors
from petastore.errors import DecodeError, MissingExtraError, PetastoreError, StorageError

FAMILY = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, PetastoreError)]


def again(problem: Exception) -> Any:
    return pickle.loads(pickle.dumps(problem))  # noqa: S301 - our own


def test_exceptions_derive_from_petastore_error() -> None:
    raised = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, Exception)]
    own = [kind for kind in raised if kind.__module__ == "petastore.errors"]
    assert all(issubclass(kind, (PetastoreError, Warning)) for kind in own)
    assert {kind.__name__ for kind in own} <= set(errors.__all__)


def test_exceptions_keep_their_message_when_pickled(subtests: pytest.Subtests) -> None:
    assert len(FAMILY) > 20
    for kind in FAMILY:
        with subtests.test(kind.__name__):
            made: Any = kind
            is_extra = kind is MissingExtraError
            problem = made("Reader", package="torch", extra="torch") if is_extra else made("it cannot be")
            problem.__notes__ = ["in a worker"]
            found = again(problem)
            assert (type(found), str(found)) == (kind, str(problem))


def test_codec_error_location_is_filled_in_once_and_pickled() -> None:
    problem = DecodeError("it is damaged", row=1_234).at(column="x", row=7).at(file="part-0", row_group=2, column="y")
    assert str(problem) == "column 'x', row 1,234 of row group 2 in part-0: it is damaged"
    found = again(problem)
    assert (str(found), found.column, found.file, found.row_group, found.row) == (str(problem), "x", "part-0", 2, 1234)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({}, "it is damaged"),
        ({"row": 3}, "row 3: it is damaged"),
        ({"row_group": 3}, "row group 3: it is damaged"),
        ({"file": "part-0"}, "part-0: it is damaged"),
        ({"column": "x", "file": "part-0"}, "column 'x' in part-0: it is damaged"),
    ],
    ids=str,
)
def test_codec_error_message_has_the_known_location(place: Any, said: str) -> None:
    assert str(DecodeError("it is damaged", **place)) == said


def test_storage_error_keeps_errno_when_pickled() -> None:
    found = again(StorageError("the disk is full", errno=errno.ENOSPC))
    assert (found.errno, str(found)) == (errno.ENOSPC, "the disk is full")
