"""What signs requests: asked for by a function, so that obstore's settings show none, and anew before it ends."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Credentials", "given"]

_ASKED_AGAIN_BEFORE = dt.timedelta(minutes=6)
"""obstore asks again five minutes before the end; by then the next ones are there."""

_REFRESHED_EVERY = dt.timedelta(minutes=10)


class Credentials:
    """Looks for credentials when they are first needed, and again before they end. Thread-safe.

    `look_again` is called before each request, in the thread that makes it: what goes wrong with looking is raised
    there as it is. obstore, which would make a text of it, only takes what was found.

    Args:
        look: Finds them, in obstore's names, and when they end; None where that is not known.

    Example:
        >>> credentials = Credentials(lambda: ({"token": "abc"}, None))
        >>> credentials.look_again()
        >>> credentials()["token"]
        'abc'
    """

    def __init__(self, look: Callable[[], tuple[Mapping[str, Any], dt.datetime | None]]) -> None:
        self._look = look
        self._found: dict[str, Any] | None = None
        self._until: dt.datetime | None = None

    def look_again(self) -> None:
        """Finds them, unless those that were found are good for some time. Two threads may both look."""
        now = dt.datetime.now(dt.UTC)
        if self._until is not None and now < self._until:
            return
        credentials, end = self._look()
        end = now + _REFRESHED_EVERY if end is None else end
        self._found, self._until = {**credentials, "expires_at": end}, end - _ASKED_AGAIN_BEFORE

    def look_anew(self) -> bool:
        """Finds them once more, whatever their end; whether they are other ones than before."""
        before, self._until = self._found, None
        self.look_again()
        return before is not None and _without_end(before) != _without_end(self._found or {})

    def __call__(self) -> dict[str, Any]:
        """What was found."""
        if self._found is None:
            self.look_again()
        return dict(self._found or {})

    def __repr__(self) -> str:
        return "Credentials()"


def _without_end(credentials: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in credentials.items() if name != "expires_at"}


def given(**known: Any) -> Callable[[], dict[str, Any]]:
    """Credentials that somebody gave; as a function, for obstore shows its settings to everybody."""

    def credentials() -> dict[str, Any]:
        return {**known, "expires_at": None}

    return credentials
