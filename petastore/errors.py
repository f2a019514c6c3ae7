"""Every error that petastore raises on purpose, in one family.

```text
PetastoreError
├─ InvalidArgumentError (ValueError)     what was asked cannot be: unknown column, shard 9 of 8
│  ├─ NoDataAvailableError               fewer rows than the request needs
│  └─ NotPicklableError  (TypeError)     a reader or loader was to go to another process
├─ SchemaError       (ValueError)        dataset and schema disagree, or a schema contradicts itself
├─ CodecError        (ValueError)        a value and its codec disagree
│  ├─ EncodeError                        … while writing
│  └─ DecodeError                        … while reading
├─ StorageError      (OSError)           storage could not do what was needed
│  ├─ DatasetNotFoundError (FileNotFoundError)   nothing at that URL
│  ├─ FileMissingError     (FileNotFoundError)   a file of the dataset is gone
│  ├─ DatasetExistsError   (FileExistsError)     something is there already
│  ├─ StorageTimeoutError    (TimeoutError)      no answer in time
│  ├─ StorageConnectionError (ConnectionError)   no connection, or it broke
│  ├─ StorageAccessError     (PermissionError)   no credentials, or they are not enough
│  ├─ DatasetChangedError                a file is not the one that the inventory describes
│  └─ MetadataError                      footer, schema document or inventory missing, newer or damaged
├─ TransformError    (RuntimeError)      the user's transform raised or broke its promise
├─ WorkerError       (RuntimeError)      a worker died
├─ ReaderClosedError (RuntimeError)      used after `stop()`
├─ LegacyNameError   (ImportError)       a name of Petastorm's that petastore does not have
└─ MissingExtraError (ImportError)       an optional dependency is not installed
```

Each is also the built-in that one would guess, so `except ValueError`, `except FileNotFoundError` and
`except TimeoutError` work, whatever the file system itself raised. A message says what was asked, what was found, why
that cannot be and what to do. The `CodecError`s say where: `column`, `file`,
`row_group` and `row` are filled in at the border of the stage that knows them, by `CodecError.at`. Four warnings
have categories of their own: `RetiredWarning`, of parameters that are accepted and have no effect any more,
`AbandonedThreadWarning`, of threads that wait for storage which does not answer, `CacheBypassWarning`, of a local
disk that does not keep what is read, and `UnshardedReaderWarning`, of a rank that was told no shard.

Example:
    >>> issubclass(InvalidArgumentError, ValueError)
    True
    >>> error = DecodeError("the png is 4×4×4, but the schema says (4, 4, 3)", column="image")
    >>> print(error.at(file="part-0.parquet", row_group=3, row=17))
    column 'image', row 17 of row group 3 in part-0.parquet: the png is 4×4×4, but the schema says (4, 4, 3)
"""

from __future__ import annotations

import functools
from typing import Self

__all__ = [
    "AbandonedThreadWarning",
    "CacheBypassWarning",
    "CodecError",
    "DatasetChangedError",
    "DatasetExistsError",
    "DatasetNotFoundError",
    "DecodeError",
    "EncodeError",
    "FileMissingError",
    "InvalidArgumentError",
    "LegacyNameError",
    "MetadataError",
    "MissingExtraError",
    "NoDataAvailableError",
    "NotPicklableError",
    "PetastoreError",
    "ReaderClosedError",
    "RetiredWarning",
    "SchemaError",
    "StorageAccessError",
    "StorageConnectionError",
    "StorageError",
    "StorageTimeoutError",
    "TransformError",
    "UnknownParameterError",
    "UnshardedReaderWarning",
    "WorkerError",
]


class RetiredWarning(FutureWarning):
    """A parameter of Petastorm's was given that has no effect any more; the message says what to do instead."""


class AbandonedThreadWarning(RuntimeWarning):
    """Storage did not answer, and the thread that waits for it could not be ended; the message says what it asked."""


class CacheBypassWarning(RuntimeWarning):
    """The local disk does not keep what is read: it is full, read-only or not permitted. Reading goes on."""


class UnshardedReaderWarning(UserWarning):
    """A reader was told no shard on one of several ranks, so each of them reads all rows; the message has a remedy."""


class PetastoreError(Exception):
    """The head of the family: `except PetastoreError` catches whatever petastore raises on purpose."""


class InvalidArgumentError(PetastoreError, ValueError):
    """What was asked cannot be; raised by the call that asks, never later in a worker."""


class UnknownParameterError(InvalidArgumentError, TypeError):
    """A parameter of this name does not exist; the message says what it is called here."""


class NoDataAvailableError(InvalidArgumentError):
    """There are fewer rows than the request needs; every rank raises it alike."""


class NotPicklableError(InvalidArgumentError, TypeError):
    """What has threads and open files was to be pickled, for another process; the message says what goes there."""


class SchemaError(PetastoreError, ValueError):
    """The dataset and the schema disagree, or the schema contradicts itself."""


class CodecError(PetastoreError, ValueError):
    """A value and the codec of its field disagree.

    Attributes:
        column: Name of the field, or None while unknown.
        file: Path of the file relative to the dataset, or None while unknown or when writing.
        row_group: Ordinal of the row group in `file`, from 0.
        row: When reading, the row inside its row group; when writing, the row inside the data given. From 0.
    """

    def __init__(
        self,
        problem: str,
        *,
        column: str | None = None,
        file: str | None = None,
        row_group: int | None = None,
        row: int | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.column = column
        self.file = file
        self.row_group = row_group
        self.row = row

    def at(
        self,
        *,
        column: str | None = None,
        file: str | None = None,
        row_group: int | None = None,
        row: int | None = None,
    ) -> Self:
        """The same error with the place filled in where it was unknown; returns itself, to be raised."""
        self.column = self.column if self.column is not None else column
        self.file = self.file if self.file is not None else file
        self.row_group = self.row_group if self.row_group is not None else row_group
        self.row = self.row if self.row is not None else row
        return self

    def __str__(self) -> str:
        place = [] if self.column is None else [f"column {self.column!r}"]
        inside = [] if self.row is None else [f"row {self.row:,}"]
        inside += [] if self.row_group is None else [f"row group {self.row_group:,}"]
        if inside:
            place.append(" of ".join(inside))
        where = ", ".join(place) + ("" if self.file is None else f" in {self.file}")
        return f"{where}: {self.problem}" if where else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions are rebuilt from `args`; the place would be lost on the way out of a Spark worker.
        rebuild = functools.partial(
            type(self), self.problem, column=self.column, file=self.file, row_group=self.row_group, row=self.row
        )
        return rebuild, ()


class EncodeError(CodecError):
    """A value cannot be written: wrong dtype, shape, null or range."""


class DecodeError(CodecError):
    """A stored cell cannot be read as its field says."""


class StorageError(PetastoreError, OSError):
    """Storage could not do what was needed: its disk is full, its server fails, its file system has a fault.

    Attributes:
        errno: The number that the system gave, such as `errno.ENOSPC`, or None where there is none.

    Example:
        >>> import errno
        >>> error = StorageError("the disk is full", errno=errno.ENOSPC)
        >>> str(error), error.errno == errno.ENOSPC
        ('the disk is full', True)
    """

    def __init__(self, problem: object = "", *, errno: int | None = None) -> None:
        super().__init__(problem)
        self.errno = errno

    def __reduce__(self) -> tuple[object, ...]:
        # OSError is rebuilt from `args` alone; the number would be lost on the way out of a worker process.
        return functools.partial(type(self), *self.args, errno=self.errno), (), self.__dict__ or None


class DatasetNotFoundError(StorageError, FileNotFoundError):
    """There is no dataset at that URL."""


class FileMissingError(StorageError, FileNotFoundError):
    """A file that the dataset has, or had a moment ago, is not there."""


class StorageTimeoutError(StorageError, TimeoutError):
    """Storage did not answer in time; the same call may succeed later."""


class StorageConnectionError(StorageError, ConnectionError):
    """Storage cannot be reached, or the connection broke: refused, reset, unknown host, TLS."""


class StorageAccessError(StorageError, PermissionError):
    """Storage refused: there are no credentials, they are wrong or expired, or they do not allow it."""


class DatasetExistsError(StorageError, FileExistsError):
    """There is a dataset at that URL already, and nothing said what should become of it."""


class DatasetChangedError(StorageError):
    """A file is not the one that the inventory describes: it was rewritten since."""


class MetadataError(StorageError):
    """A footer, a schema document or an inventory is missing, damaged, or newer than this release can read."""


class TransformError(PetastoreError, RuntimeError):
    """The user's transform raised, or gave something else than its `TransformSpec` promises."""


class WorkerError(PetastoreError, RuntimeError):
    """A worker died before its work was done."""


class ReaderClosedError(PetastoreError, RuntimeError):
    """A reader was used after `stop()`."""


class LegacyNameError(PetastoreError, ImportError):
    """A name of Petastorm's that petastore does not have; the message says what to use instead."""


class MissingExtraError(PetastoreError, ImportError):
    """An optional dependency is not installed.

    Example:
        >>> print(MissingExtraError("make_tf_dataset", package="tensorflow", extra="tf"))
        make_tf_dataset needs the package 'tensorflow', which is not installed here: pip install 'petastore[tf]'
    """

    def __init__(self, needed_by: str, *, package: str, extra: str = "") -> None:
        wanted = f"'petastore[{extra}]'" if extra else package
        super().__init__(
            f"{needed_by} needs the package {package!r}, which is not installed here: pip install {wanted}",
            name=package,
        )
        self.needed_by = needed_by
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[object, ...]:
        return functools.partial(type(self), self.needed_by, package=self.package, extra=self.extra), ()
