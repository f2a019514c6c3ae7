"""Fixtures from `tests/distributed`: the dataset, and an environment without launcher variables."""

from __future__ import annotations

from tests.distributed.conftest import _no_launcher as _no_launcher
from tests.distributed.conftest import numbers as numbers
