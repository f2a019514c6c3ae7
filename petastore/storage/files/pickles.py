"""File systems in pickles: with their credentials on the way into a process that is being started, else without.

A pickle that somebody keeps, sends, or has Spark write to a disk holds no key. What a starting process is given by
`multiprocessing` goes through a pipe, and is kept by nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing.context import get_spawning_popen
from typing import Any

from petastore.errors import StorageAccessError
from petastore.storage.requests.failure_kinds import attribute
from petastore.storage.requests.failures import raise_alone
from petastore.storage.requests.shown import secrets_in_options

__all__ = ["WithoutSecrets", "goes_to_a_child"]

_WORDS = {"anon", "browser", "cache", "cloud", "google_default"}
"""Tokens of gcsfs that say where to look."""

_SAY_HOW = {"access", "account_host", "default_location", "location_mode", "profile"}
"""Options that say where or how, and are not known as such by messages."""


def goes_to_a_child() -> bool:
    """Whether what is pickled now is given to a process that `multiprocessing` is starting."""
    return get_spawning_popen() is not None


class WithoutSecrets:
    """Pickles in place of a file system, and comes back as one that looks for its credentials itself.

    Args:
        filesystem: A file system of Arrow's.
        url: Where the dataset lies, fit to be shown.

    Example:
        >>> import pickle
        >>> from pyarrow import fs
        >>> pickle.loads(pickle.dumps(WithoutSecrets(fs.LocalFileSystem(), "file:///x"))).type_name
        'local'
    """

    def __init__(self, filesystem: Any, url: str) -> None:
        self._filesystem = filesystem
        self._url = url

    def __reduce__(self) -> Any:
        handler = attribute(self._filesystem, "handler")
        store = attribute(handler, "fs")
        if store is None:
            return _reduced_arrow(self._filesystem, self._url)
        options, left_out = _shareable(attribute(store, "storage_options") or {})
        arguments = attribute(store, "storage_args") or ()
        if secrets_in_options(list(arguments)):
            arguments, left_out = (), [*left_out, "its arguments"]
        if not left_out:
            return self._filesystem.__reduce__()
        return _made_again, (
            type(self._filesystem),
            type(handler),
            type(store),
            arguments,
            options,
            left_out,
            self._url,
        )


def _reduced_arrow(filesystem: Any, url: str) -> Any:
    """Of those of Arrow: what makes one from its options."""
    make, arguments, *state = filesystem.__reduce__()
    if not arguments or not isinstance(arguments[0], Mapping):
        return (make, arguments, *state)
    options, left_out = _shareable({name: value for name, value in arguments[0].items() if value})
    return _tried, (make, (options, *arguments[1:]), left_out, url)


def _shareable(options: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Options without those that may hold a secret, and the names of these."""
    kept: dict[str, Any] = {}
    left_out: list[str] = []
    for name, value in options.items():
        if name in _SAY_HOW or (isinstance(value, str) and value in _WORDS) or not secrets_in_options({name: value}):
            kept[name] = value
        elif isinstance(value, Mapping):
            kept[name], inner = _shareable(value)
            left_out += [f"{name}.{one}" for one in inner]
        else:
            left_out.append(name)
    return kept, left_out


def _made_again(
    files: Any, handler: Any, store: Any, arguments: Any, options: Mapping[str, Any], left_out: list[str], url: str
) -> Any:
    return _tried(lambda: files(handler(store(*arguments, **options))), (), left_out, url)


def _tried(make: Callable[..., Any], arguments: Any, left_out: list[str], url: str) -> Any:
    """A file system that is made again; where that takes what was left out, that is said."""
    try:
        return make(*arguments)
    except Exception:  # noqa: BLE001 - file systems raise what they like
        names = ", ".join(left_out) or "nothing"
        raise_alone(
            StorageAccessError(
                f"{url}: it cannot be reached in this process: pickles hold no credentials, and without ({names}) its "
                "file system is not made. Open the dataset here, with storage_options"
            )
        )
