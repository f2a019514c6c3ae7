"""The dataset of these tests, and that nobody launched them, are those of `tests/distributed`."""

from __future__ import annotations

from tests.distributed.conftest import _no_launcher as _no_launcher
from tests.distributed.conftest import numbers as numbers
