"""Tests of imports: `import petastore` is fast and loads no framework, and each name in `__all__` exists."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

import petastore
import petastore.codecs
from tests.pace import patience

PACKAGE = Path(petastore.__file__).parent
OPTIONAL = (
    "torch",
    "tensorflow",
    "jax",
    "keras",
    "pyspark",
    "zlib_ng",
    "pandas",
    "cv2",
    "simplejpeg",
    "PIL",
    "typer",
    "rich",
    "obstore",
)
MOST_AT_IMPORT = 40
"""Largest number of modules that `import petastore` may load, so that it takes well under half a second."""

# Modules for one optional dependency, which they import at module level.
ABOUT = {
    "petastore.adapters.horovod": "torch",
    "petastore.adapters.jax": "jax",
    "petastore.adapters.keras": "keras",
    "petastore.adapters.tensorflow": "tensorflow",
    "petastore.adapters.torch": "torch",
    "petastore.cli": "typer",
    "petastore.interop.horovod_spark": "horovod",
    "petastore.spark.data_source": "pyspark",
}


def _modules(*, with_content: bool = False) -> list[str]:
    """Return the public modules; with `with_content`, only those that contain more than a docstring."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("petastore", *path.relative_to(PACKAGE).with_suffix("").parts)
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        if not with_content or len(ast.parse(path.read_text(encoding="utf-8")).body) > 1:
            names.append(".".join(part for part in parts if part != "__init__"))
    return names


def _is_about_something_optional(module: str) -> bool:
    return any(module == name or module.startswith(name + ".") for name in ABOUT)


def _child(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_no_framework_and_starts_no_thread() -> None:
    code = (
        "import json, sys, threading; before = set(sys.modules); import petastore; "
        "print(json.dumps([sorted(set(sys.modules) - before), threading.active_count()]))"
    )
    loaded, threads = json.loads(_child(code))
    assert not {name.partition(".")[0] for name in loaded} & {*OPTIONAL, "numpy", "pyarrow", "fsspec"}
    assert len(loaded) <= MOST_AT_IMPORT
    assert threads == 1


def test_modules_do_not_load_optional_dependencies() -> None:
    names = [name for name in _modules() if not _is_about_something_optional(name)]
    code = (
        f"import importlib, json, sys; [importlib.import_module(name) for name in {names!r}]; "
        "print(json.dumps(sorted(m for m in sys.modules if '.' not in m)))"
    )
    assert not set(json.loads(_child(code))) & set(OPTIONAL)


def test_dir_lists_public_names_without_loading_them() -> None:
    code = "import sys, petastore; print(dir(petastore) == sorted(petastore.__all__), *sys.modules)"
    same, *loaded = _child(code).split()
    assert same == "True"
    assert [name for name in loaded if name.startswith("petastore")] == ["petastore"]


# JAX, Horovod and Lightning are installed in another environment, where the tests of `neighbours` run.
OF_NEIGHBOURS = ("petastore.adapters.jax", "petastore.interop.horovod_spark")
OF_TENSORFLOW = ("petastore.adapters.keras", "petastore.adapters.tensorflow")


@pytest.mark.leaves_running(reason="importing torch and pyspark")
def test_all_of_each_module_lists_existing_names_once(repository: Path, subtests: pytest.Subtests) -> None:
    names = [name for name in _modules(with_content=True) if not name.startswith((*OF_NEIGHBOURS, *OF_TENSORFLOW))]
    packages = {path.parent.name for path in (repository / "petastore").glob("*/__init__.py")}
    assert packages <= {name.split(".")[1] for name in names if "." in name}  # modules of every package are included
    _check_all(names, subtests)


@pytest.mark.slow
@pytest.mark.tf
def test_all_of_tensorflow_modules_lists_existing_names_once(subtests: pytest.Subtests) -> None:
    _check_all([name for name in _modules(with_content=True) if name.startswith(OF_TENSORFLOW)], subtests)


def _check_all(names: list[str], subtests: pytest.Subtests) -> None:
    """Names must also be sorted, like ruff's RUF022 checks."""
    assert names
    for name in names:
        with subtests.test(name):
            module = importlib.import_module(name)
            assert isinstance(module.__all__, list)
            assert len(set(module.__all__)) == len(module.__all__)
            for listed in module.__all__:
                assert getattr(module, listed) is not None


CORE_ONLY = """
import importlib.metadata, sys
import numpy as np
from petastore import TransformSpec, Unischema, UnischemaField, make_batch_reader, make_reader, write_dataset
from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec, ScalarCodec

installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
assert installed == {"petastore", "pyarrow", "fsspec", "numpy", "xxhash", "cloudpickle"}, installed

schema = Unischema("core", [
    UnischemaField("id", np.int64, (), ScalarCodec("bigint"), False),
    UnischemaField("name", np.str_),
    UnischemaField("weight", np.float32, nullable=True),
    UnischemaField("grid", np.uint8, (2, 3), NdarrayCodec(), False),
    UnischemaField("cloud", np.float64, (None, 3), CompressedNdarrayCodec(), False),
])
rows = [
    {"id": i, "name": f"row {i}", "weight": None if i % 3 == 0 else i / 2,
     "grid": np.full((2, 3), i, np.uint8), "cloud": np.ones((i + 1, 3)) * i}
    for i in range(20)
]
write_dataset(sys.argv[1], schema, rows, rows_per_row_group=6)
with make_reader(sys.argv[1], shuffle_row_groups=False) as reader:
    back = list(reader)
assert [row.id for row in back] == list(range(20))
for row, wrote in zip(back, rows, strict=True):
    assert row.name == wrote["name"] and row.weight == wrote["weight"]
    np.testing.assert_array_equal(row.grid, wrote["grid"])
    np.testing.assert_array_equal(row.cloud, wrote["cloud"])
with make_batch_reader(sys.argv[1], schema_fields=["id"], shuffle_row_groups=False) as reader:
    assert np.concatenate([batch.id for batch in reader]).tolist() == list(range(20))
spec = TransformSpec(lambda row: {"id": -row["id"]}, selected_fields=["id"])
with make_reader(sys.argv[1], ["id"], "process", 1, transform_spec=spec, shuffle_row_groups=False) as reader:
    assert [row.id for row in reader] == [-i for i in range(20)]
print("read", len(back))
"""


def _link_distribution(name: str, site: Path) -> None:
    """Install a distribution into another environment by symbolic links to the files of this one."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        (site / top).symlink_to(Path(str(distribution.locate_file(top))))


def test_core_dependencies_suffice_to_write_and_read_scalars_and_arrays(tmp_path: Path) -> None:
    """The test runs in a new virtual environment with only petastore and its dependencies, without obstore."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False, symlinks=True)
    site = next((home / "lib").glob("python3.*/site-packages"))
    for name in ("pyarrow", "fsspec", "numpy", "xxhash", "cloudpickle"):
        _link_distribution(name, site)
    (site / "petastore").symlink_to(PACKAGE)
    metadata = Path(str(importlib.metadata.distribution("petastore").locate_file("")))
    for information in metadata.glob("petastore-*.dist-info"):
        (site / information.name).symlink_to(information)
    ran = subprocess.run(
        [home / "bin" / "python", "-I", "-W", "error", "-c", CORE_ONLY, tmp_path / "dataset"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "read 20\n"), ran.stderr


def test_first_batch_does_not_import_pandas(tmp_path: Path) -> None:
    """Importing pandas takes at least half a second, and a batch of numbers, text or arrays does not need it."""
    program = (
        "import sys\n"
        "import numpy as np\n"
        "from petastore import Unischema, UnischemaField, make_reader, open_dataset\n"
        "from petastore.codecs import CompressedNdarrayCodec, NdarrayCodec\n"
        "from petastore.writers.local import write_dataset\n"
        "with make_reader(sys.argv[1], shuffle_rows=True) as reader:\n"
        "    batch = next(reader.iter_batches(4))\n"
        "assert 'pandas' not in sys.modules, 'pandas'\n"
        "print(sorted(batch))\n"
    )
    fields = [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("maybe", "float32", (), None, True),
        petastore.UnischemaField("word", str),
        petastore.UnischemaField("pose", "float32", (3, 2), petastore.codecs.NdarrayCodec()),
        petastore.UnischemaField("packed", "uint8", (5,), petastore.codecs.CompressedNdarrayCodec()),
        petastore.UnischemaField("free", "uint8", (None,), petastore.codecs.NdarrayCodec()),
    ]
    rows = [
        {
            "id": number,
            "maybe": None if number % 3 else number / 2,
            "word": str(number),
            "pose": np.full((3, 2), number, "float32"),
            "packed": np.full(5, number, "uint8"),
            "free": np.zeros(number, "uint8"),
        }
        for number in range(10)
    ]
    url = str(tmp_path / "all")
    petastore.write_dataset(url, petastore.Unischema("all", fields), rows, rows_per_row_group=3)
    said = subprocess.run(
        [sys.executable, "-c", program, url], check=True, capture_output=True, text=True, timeout=patience(60)
    )
    assert said.stdout == "['free', 'id', 'maybe', 'packed', 'pose', 'word']\n"


NOT_FOR_LOCAL_FILES = (
    "aiohttp", "asyncio", "calendar", "configparser", "csv", "difflib", "email", "fractions", "fsspec", "glob",
    "html.entities", "importlib.metadata", "multiprocessing", "obstore", "random", "statistics", "subprocess",
    "tempfile", "zipfile", "zstandard",
    "petastore.cache", "petastore.expressions", "petastore.plan.mixture", "petastore.plan.report",
    "petastore.plan.windows", "petastore.predicates", "petastore.readers.mixed_sources",
    "petastore.readers.window_reader", "petastore.readers.window_scan",
    "petastore.storage.metadata.pickled", "petastore.storage.stores.fsspec_store",
    "petastore.storage.stores.object_store", "petastore.storage.ranges.request_pool",
    "petastore.storage.row_groups.fetched_row_group",
    "petastore.transforming",
)  # fmt: skip
"""Modules that a batch of local files does not need; each name includes all modules below it."""

MOST_MODULES = 200

FIRST_BATCH = """
import json, sys
import numpy, pyarrow.compute, pyarrow.fs, pyarrow.parquet
before = set(sys.modules)
from petastore import make_reader
with make_reader(sys.argv[1], shuffle_rows=True, seed=1) as reader:
    next(reader.iter_batches(4))
    print(json.dumps(sorted(set(sys.modules) - before)))
"""


def test_first_batch_imports_only_the_modules_it_runs(tmp_path: Path) -> None:
    """An import takes most of a millisecond, so a thousand modules would dominate the time to the first batch."""
    fields = [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("word", str),
        petastore.UnischemaField("pose", "float32", (3, 2), petastore.codecs.NdarrayCodec()),
    ]
    rows = [{"id": number, "word": str(number), "pose": np.ones((3, 2), "float32")} for number in range(10)]
    url = str(tmp_path / "plain")
    petastore.write_dataset(url, petastore.Unischema("plain", fields), rows, rows_per_row_group=3)
    said = subprocess.run(
        [sys.executable, "-c", FIRST_BATCH, url], check=True, capture_output=True, text=True, timeout=patience(60)
    )
    loaded = json.loads(said.stdout)
    needless = [name for name in loaded if f"{name}.".startswith(tuple(f"{one}." for one in NOT_FOR_LOCAL_FILES))]
    ours = [name for name in loaded if name.partition(".")[0] == "petastore"]
    assert (needless, len(ours) <= MOST_MODULES) == ([], True), (needless, len(ours))


NUMBERS = """
import sys
from petastore import make_reader
with make_reader(sys.argv[1], shuffle_rows=True, seed=1) as reader:
    next(reader.iter_batches(4))
    print("pyarrow.compute" in sys.modules)
"""


def test_first_batch_does_not_import_pyarrow_compute(tmp_path: Path) -> None:
    fields = [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("pose", "float32", (3, 2), petastore.codecs.NdarrayCodec()),
    ]
    columns = {"id": np.arange(10), "pose": np.ones((10, 3, 2), "float32")}
    url = str(tmp_path / "numbers")
    petastore.write_dataset(url, petastore.Unischema("numbers", fields), columns, rows_per_row_group=3)
    said = subprocess.run(
        [sys.executable, "-c", NUMBERS, url], check=True, capture_output=True, text=True, timeout=patience(60)
    )
    assert said.stdout == "False\n"
