"""Run the Python blocks of documentation pages that need Spark; `test_pages.py` reports failures."""

from __future__ import annotations

import contextlib
import traceback
import warnings
from pathlib import Path
from typing import Any

from tests.documentation import evaluate, name_of, pages_with


def facts_of(kind: str, spark: Any, folder: Path) -> dict[str, str]:
    """Return a traceback or an empty text for each page; `local_session()` in a page returns the running session."""
    facts = {}
    before = dict(spark.conf.getAll)
    for number, page in enumerate(pages_with("spark")):
        own = folder / str(number)
        own.mkdir()
        facts[name_of(page)] = ""
        try:
            with contextlib.chdir(own), warnings.catch_warnings():
                warnings.simplefilter("error")
                evaluate(page)
        except Exception:  # noqa: BLE001 - the test of this page shows it
            facts[name_of(page)] = traceback.format_exc()
        for key in spark.conf.getAll.keys() - before.keys():
            spark.conf.unset(key)
    return facts
