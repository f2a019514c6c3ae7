"""Who may change the configuration of one Spark session, and when: equal settings share it, others take turns.

A session has one configuration for all threads. So a block that needs settings of its own holds the session while it
runs; blocks of other threads that need the same settings join it, and those that need others wait. A block inside
another block of the same thread does not wait for itself: it changes the settings for as long as it runs.

The turns of a session are found by a name that is kept in the session's own configuration while anybody uses them: the
one mark that all Python objects of a session share, on classic and Connect alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from petastore.errors import InvalidArgumentError

__all__ = ["settings_held"]

_logger = logging.getLogger(__name__)

_NAME = "petastore.turns"
_PATIENCE_S = 60.0
"""Seconds after which a waiting block logs a warning, again and again."""

_guard = threading.Lock()
_sessions: dict[str, _Turns] = {}


@contextlib.contextmanager
def settings_held(
    spark: Any, settings: Mapping[str, str], *, reason: str, patience_s: float = _PATIENCE_S
) -> Iterator[None]:
    """Hold a session with these settings; afterwards it has the old ones, also when the block raises.

    Keys that were not set are unset again. Waits while other threads hold the session with other settings, and logs a
    warning when that takes longer than `patience_s`.

    Args:
        spark: A classic or Connect session.
        settings: What `spark.conf` says inside the block.
        reason: Who holds it, for messages.
        patience_s: Seconds between warnings while it waits.

    Raises:
        InvalidArgumentError: A block inside a shared block wants other settings, and so does one of the threads that
            share it: each would wait for the other.
    """
    turns = _enter_session(spark)
    try:
        held = turns.begin(spark, settings, reason, patience_s)
        try:
            yield
        finally:
            turns.end(spark, held)
    finally:
        _leave_session(spark, turns)


@dataclasses.dataclass(eq=False)
class _Layer:
    """Settings that are in force, above those of the layer below."""

    settings: dict[str, str]
    before: dict[str, str | None]
    reason: str
    holders: int = 1


class _Turns:
    """The layers of one session. The lowest may be shared by threads; those above it belong to one thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.users = 0
        self._changed = threading.Condition()
        self._layers: list[_Layer] = []
        self._blocks: dict[int, int] = {}
        self._climbing = False

    def begin(self, spark: Any, settings: Mapping[str, str], reason: str, patience_s: float) -> tuple[_Layer, int]:
        me = threading.get_ident()
        with self._changed:
            if me in self._blocks:
                joins = self._layers[-1].settings == settings
                if not joins:
                    self._wait_to_be_alone(me, reason, patience_s)
            else:
                self._wait(lambda: self._open_to(settings), reason, patience_s)
                joins = bool(self._layers)
            if joins:
                self._layers[-1].holders += 1
            else:
                self._layers.append(_Layer(dict(settings), _apply(spark, settings), reason))
            self._blocks[me] = self._blocks.get(me, 0) + 1
            return self._layers[-1], me

    def end(self, spark: Any, held: tuple[_Layer, int]) -> None:
        layer, thread = held
        with self._changed:
            self._blocks[thread] -= 1
            if not self._blocks[thread]:
                del self._blocks[thread]
            layer.holders -= 1
            try:
                if not layer.holders:
                    self._layers.remove(layer)
                    _restore(spark, layer.before)
            finally:
                self._changed.notify_all()

    def _open_to(self, settings: Mapping[str, str]) -> bool:
        if not self._layers:
            return True
        return len(self._layers) == 1 and not self._climbing and self._layers[0].settings == settings

    def _wait_to_be_alone(self, me: int, reason: str, patience_s: float) -> None:
        if self._climbing and set(self._blocks) != {me}:
            raise InvalidArgumentError(
                f"{reason} wants other settings than the block around it, and so does another thread that shares that "
                "block: each would wait for the other. Do not nest blocks with other settings in threads that share "
                "one, or use session_settings=False"
            )
        self._climbing = True
        try:
            self._wait(lambda: set(self._blocks) == {me}, reason, patience_s)
        finally:
            self._climbing = False

    def _wait(self, ready: Any, reason: str, patience_s: float) -> None:
        while not self._changed.wait_for(ready, timeout=patience_s):
            _logger.warning(
                "%s has waited %.0f s for %s, which holds the Spark session with other settings; "
                "session_settings=False writes without waiting",
                reason,
                patience_s,
                self._layers[-1].reason,
            )


def _enter_session(spark: Any) -> _Turns:
    with _guard:
        name = spark.conf.get(_NAME, None)
        if name not in _sessions:
            name = uuid.uuid4().hex
            spark.conf.set(_NAME, name)
            _sessions[name] = _Turns(name)
        turns = _sessions[name]
        turns.users += 1
        return turns


def _leave_session(spark: Any, turns: _Turns) -> None:
    with _guard:
        turns.users -= 1
        if not turns.users:
            del _sessions[turns.name]
            spark.conf.unset(_NAME)


def _apply(spark: Any, settings: Mapping[str, str]) -> dict[str, str | None]:
    """Set them all, or none; returns what was set before."""
    explicit = spark.conf.getAll
    before = {key: explicit.get(key) for key in settings}
    try:
        for key, value in settings.items():
            spark.conf.set(key, value)
    except BaseException:
        _restore(spark, before)
        raise
    return before


def _restore(spark: Any, before: Mapping[str, str | None]) -> None:
    for key, value in before.items():
        if value is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, value)
