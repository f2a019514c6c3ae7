"""Exceptions and warnings that petastore raises.

All exceptions derive from `PetastoreError`, and all warnings from a built-in warning class.

```text
PetastoreError
├─ InvalidArgumentError (ValueError)     an argument is invalid: unknown column, shard 9 of 8
│  ├─ UnknownParameterError (TypeError)  the function does not have a parameter of this name
│  ├─ NoDataAvailableError               the dataset has fewer rows than required
│  └─ NotPicklableError  (TypeError)     a reader or loader cannot be pickled
├─ SchemaError       (ValueError)        the dataset does not match the schema, or the schema is invalid
├─ CodecError        (ValueError)        a value does not match the codec of its field
│  ├─ EncodeError                        … while writing
│  └─ DecodeError                        … while reading
├─ StorageError      (OSError)           a storage operation failed
│  ├─ DatasetNotFoundError (FileNotFoundError)   no dataset exists at the URL
│  ├─ FileMissingError     (FileNotFoundError)   a data file of the dataset is missing
│  ├─ DatasetExistsError   (FileExistsError)     a dataset already exists at the URL
│  ├─ StorageTimeoutError    (TimeoutError)      storage did not answer in time
│  ├─ StorageConnectionError (ConnectionError)   storage is unreachable, or the connection broke
│  ├─ StorageAccessError     (PermissionError)   credentials are missing or not sufficient
│  ├─ DatasetChangedError                a file differs from the dataset's list of files
│  └─ MetadataError                      a footer, schema document or manifest is missing, damaged or newer
├─ TransformError    (RuntimeError)      the user's transform raised, or its result is invalid
├─ WorkerError       (RuntimeError)      a worker process died, or a rank failed
├─ ReaderClosedError (RuntimeError)      a reader was used after `stop()`
├─ LegacyNameError   (ImportError)       petastore does not have this name of Petastorm
└─ MissingExtraError (ImportError)       an optional dependency is not installed
```

Each exception also derives from the built-in in parentheses, so `except ValueError`, `except FileNotFoundError` and
`except TimeoutError` work for every file system. A message names the argument, the value, the reason and the remedy. A
`CodecError` also has the attributes `column`, `file`, `row_group` and `row`. Warnings have their own classes:
`RetiredWarning`, `AbandonedThreadWarning`, `CacheBypassWarning`, `LargeRowGroupWarning` and
`UnshardedReaderWarning`.

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
    "LargeRowGroupWarning",
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
    """The caller passed a parameter of Petastorm that petastore ignores.

    The message names the replacement.
    """


class AbandonedThreadWarning(RuntimeWarning):
    """A thread could not be stopped, because it waits for storage.

    The message names the request.
    """


class CacheBypassWarning(RuntimeWarning):
    """The local disk cache is not used: its disk is full, read-only or not writable.

    Reading continues.
    """


class LargeRowGroupWarning(UserWarning):
    """A row group must be loaded whole, but exceeds a quarter of `memory_budget`."""


class UnshardedReaderWarning(UserWarning):
    """A reader without a shard was opened on one of several ranks.

    Every rank therefore reads all rows.
    """


class PetastoreError(Exception):
    """Base class of all exceptions of petastore."""


class InvalidArgumentError(PetastoreError, ValueError):
    """An argument or a call is invalid, such as a second loop over a reader while the first loop is running."""


class UnknownParameterError(InvalidArgumentError, TypeError):
    """The function has no parameter of this name; the message suggests the right name."""


class NoDataAvailableError(InvalidArgumentError):
    """The dataset has fewer rows than required; every rank raises the same error."""


class NotPicklableError(InvalidArgumentError, TypeError):
    """An object with threads or open files, such as a reader, cannot be pickled.

    The message names an alternative.
    """


class SchemaError(PetastoreError, ValueError):
    """The dataset does not match the schema, or the schema is invalid."""


class CodecError(PetastoreError, ValueError):
    """A value does not match the codec of its field.

    Attributes:
        column: Name of the field; None if unknown.
        file: Path of the file relative to the dataset; None if unknown, or when writing.
        row_group: Ordinal of the row group in `file`, from 0.
        row: Row number, from 0: in the row group when reading, in the written data when writing. None if unknown.
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
        """Set the attributes that are still None, and return this error.

        The class docstring describes the arguments. Attributes that have a value already do not change.
        """
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
        where = " in ".join(part for part in (", ".join(place), self.file) if part)
        return f"{where}: {self.problem}" if where else self.problem

    def __reduce__(self) -> tuple[object, ...]:
        # Unpickling rebuilds exceptions from `args` alone, and would lose file and row of an error in a Spark worker.
        rebuild = functools.partial(
            type(self), self.problem, column=self.column, file=self.file, row_group=self.row_group, row=self.row
        )
        return rebuild, ()


class EncodeError(CodecError):
    """A value cannot be written: wrong dtype or shape, null, or out of range."""


class DecodeError(CodecError):
    """A stored cell is damaged, or does not match the dtype and shape of its field."""


class StorageError(PetastoreError, OSError):
    """A storage operation failed, for example because the disk is full.

    Attributes:
        errno: The system's error number, such as `errno.ENOSPC`; None if there is none.

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
        # Unpickling rebuilds OSError from `args` alone, and would lose the errno of an error in a worker process.
        return functools.partial(type(self), *self.args, errno=self.errno), (), self.__dict__ or None


class DatasetNotFoundError(StorageError, FileNotFoundError):
    """No dataset exists at the URL."""


class FileMissingError(StorageError, FileNotFoundError):
    """A data file of the dataset is missing."""


class StorageTimeoutError(StorageError, TimeoutError):
    """Storage did not answer in time; a retry may succeed later."""


class StorageConnectionError(StorageError, ConnectionError):
    """Storage is unreachable, or the connection broke.

    Causes are refused and reset connections, unknown hosts and TLS errors.
    """


class StorageAccessError(StorageError, PermissionError):
    """Storage denied access.

    Credentials are missing, wrong or expired, or do not allow the operation.
    """


class DatasetExistsError(StorageError, FileExistsError):
    """A dataset already exists at the URL, and `mode` is `"error"`."""


class DatasetChangedError(StorageError):
    """A file differs from the dataset's inventory (list of files and row groups).

    The file was rewritten after the dataset was opened or committed.
    """


class MetadataError(StorageError):
    """A footer, schema document or manifest is missing or damaged.

    Also raised if a newer release of petastore wrote the file.
    """


class TransformError(PetastoreError, RuntimeError):
    """The user's transform function raised an error, or returned an invalid result.

    A result is invalid if it does not match the `TransformSpec`.
    """


class WorkerError(PetastoreError, RuntimeError):
    """A worker process died, or a rank of a Spark training job failed."""


class ReaderClosedError(PetastoreError, RuntimeError):
    """A reader was used after `stop()` or `close()`."""


class LegacyNameError(PetastoreError, ImportError):
    """The imported name of Petastorm does not exist in petastore.

    The message names the replacement.
    """


class MissingExtraError(PetastoreError, ImportError):
    """An optional dependency is not installed.

    The message has the `pip install` command.

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
