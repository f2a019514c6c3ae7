"""Our docstrings head one example with `Example:`; the site's generator knows only `Examples:`. This tells it."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

__all__ = ["ExampleSections"]


class ExampleSections(Extension):
    """Renames the heading in every docstring before it is parsed."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for each object, once it is loaded."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
