"""Fold deprecated parameters away on the site, into a block that opens on a click."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["RetiredParameters"]

_ARGS = re.compile(r"^(?P<title>Args:.*\n)(?P<entries>(?:(?: {4}.*)?\n)+)", re.MULTILINE)
_RETIRED = re.compile(
    r"^ {4}(?P<name>\w+): (?:Retired|Accepted, of no effect)(?P<says>.*\n(?: {8}.*\n)*)", re.MULTILINE
)


class RetiredParameters(Extension):
    """Move deprecated parameters out of the list of parameters into a folded block below it."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for each object, once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = _ARGS.sub(_folded, f"{obj.docstring.value}\n").rstrip()


def _folded(args: re.Match[str]) -> str:
    retired = list(_RETIRED.finditer(args["entries"]))
    if not retired:
        return args[0]
    lines = "".join(f"    * `{one['name']}`{' '.join(one['says'].split())}\n" for one in retired)
    kept = _RETIRED.sub("", args["entries"])
    section = f"{args['title']}{kept}" if kept.strip() else ""  # a section of nothing else goes
    return f'{section}??? note "Retired parameters: accepted, and of no effect"\n\n{lines}\n'
