"""Tests of storage errors: filesystem exceptions become petastore errors without secrets."""

from __future__ import annotations

import dataclasses
import errno
import pickle
import traceback

import pytest

from petastore.errors import DatasetNotFoundError, FileMissingError, StorageError, StorageTimeoutError
from petastore.storage.files.location import open_location
from petastore.storage.requests.failures import answered, asking

PLACE = open_location("memory://bucket/frames")


def raiser(problem: BaseException) -> object:
    raise problem


def test_storage_error_has_no_chained_exception() -> None:
    soon = dataclasses.replace(PLACE, timeout_s=0.5)
    with pytest.raises(StorageTimeoutError) as one:
        answered(soon, lambda: raiser(TimeoutError("token=hush-hush")), "list the directory")
    with pytest.raises(StorageTimeoutError) as other, asking(PLACE, "list the directory"):
        raise TimeoutError("token=hush-hush")
    for caught in (one, other):
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert "hush-hush" not in "".join(traceback.format_exception(caught.value)).replace('"token=hush-hush"', "")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_interrupts_and_memory_errors_of_a_request_are_raised_unchanged(kind: type[BaseException]) -> None:
    with pytest.raises(kind), asking(PLACE):
        raise kind
    with pytest.raises(kind):
        answered(PLACE, lambda: raiser(kind()))


def test_petastore_errors_are_raised_unchanged() -> None:
    mine = FileMissingError("it is gone")
    with pytest.raises(FileMissingError) as caught:
        answered(PLACE, lambda: raiser(mine))
    assert caught.value is mine


def test_missing_dataset_and_missing_file_raise_different_errors() -> None:
    with pytest.raises(DatasetNotFoundError, match="nothing at that URL"):
        answered(PLACE, lambda: raiser(FileNotFoundError()))
    with pytest.raises(FileMissingError, match=r"the file part-0\.parquet is missing"):
        answered(PLACE, lambda: raiser(FileNotFoundError()), path="part-0.parquet")


def test_storage_error_keeps_errno() -> None:
    with pytest.raises(StorageError, match="full") as caught:
        answered(PLACE, lambda: raiser(OSError(errno.ENOSPC, "No space left on device")), "write", "part-0.parquet")
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - our own
    assert (again.errno, str(again)) == (errno.ENOSPC, str(caught.value))


def test_filesystem_bug_is_reported_with_its_source_file() -> None:
    with pytest.raises(StorageError, match=r"MemoryFileSystem raised KeyError: 'Contents'.*raiser \(test_failures\.py"):
        answered(PLACE, lambda: raiser(KeyError("Contents")))


def test_long_storage_messages_are_truncated() -> None:
    with pytest.raises(StorageError) as caught:
        answered(PLACE, lambda: raiser(OSError("<html>" * 10_000)))
    assert len(str(caught.value)) < 1000
