"""Parameters that mean nothing any more are folded away on the site: they are documented, and in nobody's way."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["RetiredParameters"]

_ARGS = re.compile(r"^Args:\n(?P<entries>(?:(?: {4}.*)?\n)+)", re.MULTILINE)
_RETIRED = re.compile(
    r"^ {4}(?P<name>\w+): (?:Retired|Accepted, of no effect)(?P<says>.*\n(?: {8}.*\n)*)", re.MULTILINE
)


class RetiredParameters(Extension):
    """Moves them out of the list of parameters into a block below it, which opens when it is asked to."""

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
    return f'Args:\n{kept}??? note "Retired parameters: accepted, and of no effect"\n\n{lines}\n'
