"""Fixture of files outside the repository: collected only by `make corpus`, which passes their folder."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PETASTORE_TESTS") == "corpus" else ["*.py"]
