"""Files that are not the repository's: collected by `make corpus` only, which names the folder that holds them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("PETASTORE_TESTS") == "corpus" else ["*.py"]
