"""Build the wheel of this tree with `pip wheel`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["build_wheel"]


def build_wheel(tree: Path, folder: Path) -> Path:
    """Build the wheel of a source tree into a folder, with the installed hatchling and without downloads.

    Raises:
        subprocess.CalledProcessError: The build failed; `output` has pip's messages.
    """
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--wheel-dir", str(folder), str(tree)]
    subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    (wheel,) = folder.glob("petastore-*.whl")
    return wheel
