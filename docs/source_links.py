"""Each name of the reference links to its lines in the repository, at the branch from which the site is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from griffe import Extension, Object

__all__ = ["SourceLinks"]

_ROOT = Path(__file__).resolve().parents[1]


class SourceLinks(Extension):
    """Says where objects are, for `docs/theme/templates`.

    Args:
        base: The address of the repository's files, to which a path is added.
    """

    def __init__(self, base: str) -> None:
        super().__init__()
        self._base = base.rstrip("/")

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called by griffe for each object, once it is loaded."""
        if isinstance(obj.filepath, Path) and obj.filepath.is_relative_to(_ROOT) and obj.lineno is not None:
            path = obj.filepath.relative_to(_ROOT).as_posix()
            obj.source_link = f"{self._base}/{path}#L{obj.lineno}-L{obj.endlineno}"
