"""Import hook for child processes: `import petastorm` imports petastore."""

import importlib
import sys

from petastore.interop.petastorm import install

if __name__ == "petastorm":
    del sys.modules["petastorm"]
    install()
    # The import statement returns the module that is in `sys.modules` after this file has run.
    importlib.import_module("petastorm")
