"""Facts of the machine that are published with every result."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["facts"]


def facts() -> dict[str, str]:
    """CPU, memory, system and Python, as a page says them."""
    libc, version = platform.libc_ver()
    return {
        "CPU": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} of {os.cpu_count()} CPUs usable",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "system": f"Linux {platform.release()}, {platform.machine()}, {libc} {version}",
        "Python": platform.python_version(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown CPU"
