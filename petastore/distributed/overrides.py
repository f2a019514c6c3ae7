"""Environment variables that override reader arguments.

With these variables, each host can read from another URL, cache or shard.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import logging
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from petastore.errors import InvalidArgumentError
from petastore.storage.requests.failures import HIDDEN, shown_url

__all__ = ["with_environment"]

_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")

_log = logging.getLogger(__name__)

_PREFIX: Final = "PETASTORE_"
_URL_PARAMETERS: Final = ("dataset_url", "dataset_url_or_urls", "dataset")


class _Override(NamedTuple):
    parameter: str
    parse: Callable[[str], Any]
    form: str
    shown: Callable[[str], str] = str


def _text(value: str) -> str:
    if not value:
        raise ValueError
    return value


def _whole(value: str) -> int:
    if re.fullmatch("[0-9]{1,18}", value) is None:
        raise ValueError
    return int(value)


def _shard(value: str) -> int | str:
    return value if value == "auto" else _whole(value)


def _json_object(value: str) -> object:
    options = json.loads(value)
    if not isinstance(options, dict):
        raise ValueError  # noqa: TRY004 - the caller catches ValueError
    return options


def _hidden(_value: str) -> str:
    return HIDDEN


_OVERRIDES: Final[Mapping[str, _Override]] = {
    "PETASTORE_URL": _Override("dataset_url", _text, "a URL", shown_url),
    "PETASTORE_CUR_SHARD": _Override("cur_shard", _shard, "an int of at least 0, or auto"),
    "PETASTORE_SHARD_COUNT": _Override("shard_count", _whole, "a whole number"),
    "PETASTORE_STORAGE_OPTIONS": _Override("storage_options", _json_object, "a JSON object", _hidden),
    "PETASTORE_CACHE_TYPE": _Override("cache_type", _text, "null or local-disk"),
    "PETASTORE_CACHE_LOCATION": _Override("cache_location", _text, "a local directory"),
    "PETASTORE_CACHE_SIZE_LIMIT": _Override("cache_size_limit", _whole, "a number of bytes"),
    "PETASTORE_MEMORY_BUDGET": _Override("memory_budget", _whole, "a number of bytes"),
    "PETASTORE_WORKERS_COUNT": _Override("workers_count", _whole, "a whole number"),
}
"""Variables for arguments that may differ between hosts. Arguments that select rows or set their order must be equal on
all ranks, so they have no variable."""

_CACHE_DIRECTORY: Final = "PETASTORE_CACHE"
"""Variable with the user's cache directory (`petastore.cache.folder`), which is not an argument of a reader."""


def with_environment(reads: Callable[_Asked, _Given]) -> Callable[_Asked, _Given]:
    """Wrap a function that opens readers: environment variables override arguments.

    Only wrapped functions read these variables. Each override is logged (logger `petastore.distributed`, level INFO).
    Parameters that select rows or their order do not have a variable, because they must be equal on all ranks.

    | variable | argument |
    |---|---|
    | `PETASTORE_URL` | the URL of the dataset |
    | `PETASTORE_CUR_SHARD` | `cur_shard`: a number, or `auto`, without `PETASTORE_SHARD_COUNT` |
    | `PETASTORE_SHARD_COUNT` | `shard_count` |
    | `PETASTORE_STORAGE_OPTIONS` | `storage_options`, as a JSON object; never logged |
    | `PETASTORE_CACHE_TYPE` | `cache_type` |
    | `PETASTORE_CACHE_LOCATION` | `cache_location` |
    | `PETASTORE_CACHE_SIZE_LIMIT` | `cache_size_limit`, in bytes |
    | `PETASTORE_MEMORY_BUDGET` | `memory_budget`, in bytes |
    | `PETASTORE_WORKERS_COUNT` | `workers_count` |

    Args:
        reads: `petastore.make_reader`, `make_batch_reader`, `ReaderDataset`, or another function with such parameters.

    Returns:
        A function with the same parameters. It reads the environment at each call. It raises `InvalidArgumentError` for
        a variable `PETASTORE_…` that is unknown, does not apply to the function, or has an invalid value.

    Example:
        >>> import os, petastore
        >>> make_reader = with_environment(petastore.make_reader)
        >>> os.environ["PETASTORE_CURSHARD"] = "1"
        >>> make_reader("s3://bucket/train")
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: PETASTORE_CURSHARD must be unset: it is not an argument of a reader. Did
            you mean PETASTORE_CUR_SHARD?
        >>> del os.environ["PETASTORE_CURSHARD"]
    """
    parameters = list(inspect.signature(reads).parameters)

    @functools.wraps(reads, updated=())  # `reads` may be a class, whose attributes must not be copied
    def reading(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Given:
        given: list[Any] = list(args)
        for name, value in _overriding(os.environ, parameters, reads.__name__):
            place = parameters.index(name)
            if place < len(given):
                given[place] = value
            else:
                kwargs[name] = value
        return reads(*given, **kwargs)

    return reading


def _overriding(environ: Mapping[str, str], parameters: list[str], function: str) -> list[tuple[str, Any]]:
    """Return (parameter, value) for each argument that an environment variable overrides.

    Args:
        environ: Environment variables.
        parameters: Names of the function's parameters.
        function: Name of the function, for messages.

    Raises:
        InvalidArgumentError: A variable `PETASTORE_…` is unknown or invalid, or the function lacks its parameter.
    """
    found: list[tuple[str, Any]] = []
    for variable in sorted(name for name in environ if name.startswith(_PREFIX) and name != _CACHE_DIRECTORY):
        override = _OVERRIDES.get(variable)
        if override is None:
            known = [name.removeprefix(_PREFIX) for name in _OVERRIDES]
            near = difflib.get_close_matches(variable.removeprefix(_PREFIX).upper(), known, n=1)
            meant = f"Did you mean {_PREFIX}{near[0]}?" if near else f"The variables are {', '.join(_OVERRIDES)}"
            raise InvalidArgumentError(f"{variable} must be unset: it is not an argument of a reader. {meant}")
        parameter = parameters[0] if variable == "PETASTORE_URL" else override.parameter
        if parameter not in parameters or (variable == "PETASTORE_URL" and parameter not in _URL_PARAMETERS):
            raise InvalidArgumentError(
                f"{variable} must be unset, because {function} has no parameter {override.parameter!r}"
            )
        found.append((parameter, _parsed(variable, override, environ[variable])))
        _log.info("%s of %s is overridden by %s=%s", parameter, function, variable, override.shown(environ[variable]))
    if ("cur_shard", "auto") in found:
        if "PETASTORE_SHARD_COUNT" in environ:
            raise InvalidArgumentError(
                "PETASTORE_SHARD_COUNT must be unset with PETASTORE_CUR_SHARD=auto, which detects the number of ranks"
            )
        found.append(("shard_count", None))
    return found


def _parsed(variable: str, override: _Override, text: str) -> Any:
    try:
        return override.parse(text)
    except (ValueError, RecursionError):
        # The value is not shown, because it may be a secret.
        raise InvalidArgumentError(f"{variable} must be {override.form}. Correct or unset the variable") from None
