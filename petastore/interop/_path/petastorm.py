"""The switch for child processes: on their path, the first `import petastorm` turns it on and is then given ours."""

import importlib
import sys

from petastore.interop.petastorm import install

if __name__ == "petastorm":
    del sys.modules["petastorm"]
    install()
    # Whoever imports this is given what is in `sys.modules` at the end.
    importlib.import_module("petastorm")
