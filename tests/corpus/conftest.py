"""Collect the tests of this folder only in `make corpus`, which passes the folder of the corpus files."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PETASTORE_TESTS") == "corpus" else ["*.py"]
