"""Run the notebooks of `examples/` in Jupyter kernels, and store their output: `python -m tests.examples.notebooks`.

    python -m tests.examples.notebooks [--into FOLDER]

Each notebook runs in its own kernel, in an empty folder. `--into` writes copies there instead.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

__all__ = ["EXAMPLES", "run"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_CELL_TIMEOUT_S = 300


def run(path: Path, folder: Path, sockets: Path) -> nbformat.NotebookNode:
    """Run a notebook in a folder, and return it with the output of its cells, without times.

    Args:
        path: The notebook; the file is not changed.
        folder: Working directory of the kernel.
        sockets: Folder for the sockets of the kernel; must have a short path.

    Raises:
        nbclient.exceptions.CellExecutionError: A cell raised; the message has the cell and the traceback.
    """
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=_CELL_TIMEOUT_S,
        kernel_name="python3",
        record_timing=False,
        # Sockets are in a private folder, because every user of the machine could connect to ports.
        config=Config({"KernelManager": {"transport": "ipc", "ip": str(sockets / "kernel")}}),
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    for output in _outputs(notebook):
        output.get("metadata", {}).clear()
        if "image/png" in output.get("data", {}):
            output.data.pop("image/jpeg", None)  # a JPEG of the same image
    notebook.metadata["language_info"] = {"name": "python"}  # without the Python version
    return notebook


def _outputs(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def main() -> None:
    """Run all notebooks."""
    parser = argparse.ArgumentParser(prog="python -m tests.examples.notebooks", description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=EXAMPLES, help="write there what was run, in place of over it")
    into = parser.parse_args().into
    with tempfile.TemporaryDirectory() as scratch:
        # Kernels write history, settings and connection files to these folders, by default in the user's home.
        places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
        os.environ.update({name: str(Path(scratch, name)) for name in places})
        for path in sorted(EXAMPLES.glob("*.ipynb")):
            folder = Path(scratch, path.stem)
            folder.mkdir()
            notebook = run(path, folder, Path(scratch))
            nbformat.write(notebook, into / path.name)
            print(f"notebooks: {path.name}, {sum('outputs' in cell for cell in notebook.cells)} cells")


if __name__ == "__main__":
    main()
