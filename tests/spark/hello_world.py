"""The hello world example writes its dataset in the shared session; `tests/spark/test_hello_world.py` reads it."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

from examples.hello_world import write


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, Any]:
    """Return what the program prints; `local_session()` gives it the session that runs already."""
    url = (folder / "world").as_uri()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        write.main(url)
    return {"url": url, "printed": printed.getvalue().splitlines()}
