"""Redact URLs and messages: hide users, passwords, signatures and keys. No I/O.

All output, exceptions, warnings and log messages about storage pass through this module. It removes parts of URLs that
may contain a secret, option values of the filesystem, and common patterns of credentials (`token=…`, `Authorization:
Bearer …`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

__all__ = ["HIDDEN", "secrets_in_options", "secrets_in_url", "shown_text", "shown_url", "without_query"]

HIDDEN = "***"
"""Text that replaces a secret."""

_SCHEME = r"(?:(?<![A-Za-z0-9+.-])|(?<=::))[A-Za-z][A-Za-z0-9+.-]*:/{2,}"
_URL = re.compile(rf"({_SCHEME})(.*)", re.DOTALL)
# Separator of the URLs of a chain such as `simplecache::s3://…`, in which all but the last may be only a scheme. It is
# not just `::`, because a password may contain `::`.
_LINK = r"::(?=(?:[A-Za-z][A-Za-z0-9+.-]*::){0,8}[A-Za-z][A-Za-z0-9+.-]*:/{2,})"
# A URL inside a sentence ends at white space, a quote, or the next URL of a chain.
_URL_IN_TEXT = re.compile(rf"({_SCHEME})((?:(?!{_LINK})[^\s'\"<>`])*)(?<![,.;:)\]])")
_LOCAL = {"file", "local", "memory"}
# For these schemes the part before `@` is a container, not a user.
_CONTAINERS = {"abfs", "abfss", "wasb", "wasbs", "az", "adl"}
_PORT = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]*)?")
_ARN = re.compile(r"arn:[a-z-]+:")
# Matches only the end of a name, such as `token` in `spark.my.token`: a prefix as `[\w.]*` would take quadratic time.
_NAME = (
    r"(?:signature|token|secret|passw(?:or)?d|pwd|credential|api[_-]?key|access[_-]?key(?:[_-]?id)?"
    r"|account[_-]?key|private[_-]?key|(?<!\w)(?:sig|sas|authorization))"
)
_SPELLED = re.compile(
    rf"(?i)(?P<name>{_NAME}(?:[_-]?id)?)(?P<between>['\"]?\s*(?:=|:(?!/))\s*)(?P<quote>(?:b(?=['\"]))?['\"]?)"
    r"(?P<value>(?:(?:bearer|basic|negotiate)\s+)?[^\s'\"&,;)}\]]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+(?=[A-Za-z0-9._~+/=-]{8,})[A-Za-z0-9._~+/=-]+")
_PAIRS = re.compile(r"[\w.%~-]+=[^&]*(?:&[\w.%~-]+=[^&]*)*")
# Values of these options name a place, not a user.
_HARMLESS = {
    "account_name", "addressing_style", "block_size", "bucket", "cache_regions", "cache_storage", "consistency",
    "container", "container_name", "default_block_size", "default_cache_type", "endpoint", "endpoint_override",
    "endpoint_url", "fo", "host", "hostname", "location", "mode", "path", "port", "project", "protocol", "region",
    "region_name", "scheme", "signature_version", "target_protocol", "version",
}  # fmt: skip
_SHORTEST = 4
_DEEPEST = 6


def shown_url(url: str) -> str:
    """Return a URL without user, password, query and fragment.

    A plain path is unchanged. In local paths, `#` and `?` are part of the name and stay, unless `name=value` pairs
    follow. The container of Azure URLs stays.

    Example:
        >>> shown_url("https://me:secret@host/a.parquet?sig=abc")
        'https://***@host/a.parquet'
        >>> shown_url("simplecache::s3://bucket/a?b"), shown_url("file:///data/what?.parquet")
        ('simplecache::s3://bucket/a?***', 'file:///data/what?.parquet')
        >>> shown_url("abfs://container@account.dfs.core.windows.net/frames")
        'abfs://container@account.dfs.core.windows.net/frames'
    """
    return "::".join(_shown_link(link) for link in re.split(_LINK, url))


def shown_text(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a message of another library with secrets redacted, also in its URLs.

    Args:
        text: Message that may contain secrets.
        secrets: Secrets to redact, from `secrets_in_url` and `secrets_in_options`.

    Example:
        >>> shown_text("GET https://host/a?sig=abc failed for key S3CR3T", {"S3CR3T"})
        'GET https://host/a failed for key ***'
    """
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    text = _URL_IN_TEXT.sub(lambda match: _shown_link(match[0]), text)
    text = _SPELLED.sub(lambda match: f"{match['name']}{match['between']}{match['quote']}{HIDDEN}", text)
    return _BEARER.sub(rf"\1 {HIDDEN}", text)


def without_query(path: str) -> str:
    """Return a path in a filesystem without the query of a web address or signed URL.

    In other paths `?` and `#` are part of the name, unless `name=value` pairs follow.

    Example:
        >>> without_query("https://host/a.parquet?sig=a/b"), without_query("bucket/a.parquet#token=abc")
        ('https://host/a.parquet', 'bucket/a.parquet')
        >>> without_query("bucket/what?.parquet"), without_query("/data/a?b=c.parquet")
        ('bucket/what?.parquet', '/data/a?b=c.parquet')
    """
    if path.startswith("/"):
        return path
    mark = re.search("[?#]", path)
    if mark is None or not (path.startswith(("http://", "https://")) or _PAIRS.fullmatch(path[mark.end() :])):
        return path
    return path[: mark.start()]


def secrets_in_url(url: str) -> frozenset[str]:
    """Return the secret parts of a URL, both encoded and decoded.

    These are users, passwords, queries and fragments.

    Example:
        >>> {"s%40cret", "s@cret", "abcd"} <= secrets_in_url("https://me:s%40cret@host/a?sig=abcd")
        True
    """
    secrets: set[str] = set()
    for link in re.split(_LINK, url):
        match = _URL.match(link)
        if match is None:
            continue
        user, _, rest = _parts(match[1], match[2])
        query = rest.removeprefix("?").removeprefix("#")
        values = [value.partition("=")[2] for value in re.split("[&#?]", query)]
        secrets.update([user, user.partition(":")[2], query, *values])
    return _spelled(secrets)


def secrets_in_options(options: Any) -> frozenset[str]:
    """Return the secrets among a filesystem's keyword arguments.

    All values are treated as secrets, except the values of options that are known to be harmless.

    Example:
        >>> sorted(secrets_in_options({"key": "AKIA", "client_kwargs": {"region_name": "eu", "token": b"t0ken"}}))
        ['AKIA', 't0ken']
    """
    return _spelled(_texts(options, _DEEPEST))


def _texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from (value, *(word for word in value.split() if len(word) > 2 * _SHORTEST))
        yield from secrets_in_url(value)
    elif isinstance(value, (bytes, bytearray)):
        yield bytes(value).decode("utf-8", "replace")
    elif depth and isinstance(value, Mapping):
        for name, inner in value.items():
            if str(name).lower() not in _HARMLESS:
                yield from _texts(inner, depth - 1)
            elif isinstance(inner, str):
                yield from secrets_in_url(inner)
    elif depth and isinstance(value, (tuple, list, set, frozenset)):
        for inner in value:
            yield from _texts(inner, depth - 1)
    elif depth and not isinstance(value, (type, int, float)) and hasattr(value, "__dict__"):
        # Objects may hold credentials, such as the credential classes of Azure.
        yield from _texts({name: inner for name, inner in vars(value).items() if isinstance(inner, (str, bytes))}, 1)


def _spelled(secrets: Iterable[str]) -> frozenset[str]:
    """Return the secrets in each encoding that messages may use.

    Very short texts are omitted, because they occur in many words.
    """
    texts = {text for text in secrets if len(text) >= _SHORTEST}
    ways = (quote, quote_plus, unquote, lambda text: quote(text, safe=""), lambda text: repr(text)[1:-1])
    texts |= {way(text) for text in texts for way in ways}
    return frozenset(text for text in texts if len(text) >= _SHORTEST)


def _shown_link(link: str) -> str:
    match = _URL.match(link)
    if match is None:
        return link
    user, place, rest = _parts(match[1], match[2])
    # In web addresses a query is not part of a name; elsewhere it may be, so the omission is marked.
    mark = f"{rest[0]}{HIDDEN}" if rest and not match[1].lower().startswith("http") else ""
    return f"{match[1]}{HIDDEN + '@' if user else ''}{place}{mark}"


def _parts(start: str, rest: str) -> tuple[str, str, str]:
    """Split a URL; return (credentials, host and path, query and fragment).

    The credentials are the user and password before `@`. A missing part is an empty string.

    Args:
        start: The scheme with `://`.
        rest: Text of the URL after `start`.
    """
    scheme = start.partition(":")[0].lower()
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user = ""
    cut = rest.rfind("@", 0, len(authority))
    if not _PORT.fullmatch(authority[cut + 1 :]) and not _ARN.match(authority):
        cut = max(cut, rest.rfind("@"))  # the password has an unescaped `/`, `?` or `#`
    if cut >= 0 and not (scheme in _CONTAINERS and ":" not in rest[:cut]):
        user, rest = rest[:cut], rest[cut + 1 :]
    end = re.search("[?]" if scheme in _LOCAL else "[?#]", rest)
    if end is None or (scheme in _LOCAL and not _PAIRS.fullmatch(rest[end.end() :])):
        return user, rest, ""
    return user, rest[: end.start()], rest[end.start() :]
