"""The layout tells the architecture: rooms are small, no two files need each other, and tests mirror them."""

from __future__ import annotations

import ast
import collections
import graphlib
import re
import tomllib
from pathlib import Path

MOST_FILES = 15


def module_of(path: Path, repository: Path) -> str:
    return ".".join(path.relative_to(repository).with_suffix("").parts).removesuffix(".__init__")


def imported_by(path: Path, modules: set[str]) -> set[str]:
    """The modules among some that a file imports anywhere: in functions, and for types alone, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({f"{node.module}.{name.name}" for name in node.names} & modules or {node.module})
    return found & modules


def test_no_floor_has_more_files_than_one_takes_in_at_a_glance(repository: Path) -> None:
    floors = collections.Counter(path.parent for path in (repository / "petastore").rglob("*.py"))
    assert {str(floor.relative_to(repository)): count for floor, count in floors.items() if count > MOST_FILES} == {}


def test_no_two_files_need_each_other(repository: Path) -> None:
    paths = {module_of(path, repository): path for path in (repository / "petastore").rglob("*.py")}
    imports = {module: imported_by(path, set(paths)) - {module} for module, path in paths.items()}
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError, which names the files of a cycle


def layers_of(repository: Path, container: str) -> list[list[str]]:
    """The layers of a contract, from the top, each with its names."""
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract.get("containers") == [container]]
    return [re.findall(r"\w+", layer) for layer in layers]


def picture_of(repository: Path, first: str, arrow: str) -> list[list[str]]:
    """The names in the picture that begins with a name, from arrow to arrow."""
    page = (repository / "docs/explanation/a-reader-runs-a-plan.md").read_text(encoding="utf-8")
    (picture,) = re.findall(rf"```text\n({first}\b.*?)```", page, re.DOTALL)
    return [re.findall(r"\w+", names) for names in picture.split(arrow)]


def test_the_picture_of_the_layers_is_what_is_checked(repository: Path) -> None:
    layers = layers_of(repository, "petastore")[::-1]
    height = {name: number for number, names in enumerate(layers) for name in names}
    pictured = picture_of(repository, "errors", "←")
    heights = [[height[name] for name in names] for names in pictured]
    assert all(len(set(group)) == 1 for group in heights)
    assert heights == sorted(heights)
    packages = {path.parent.name for path in (repository / "petastore").glob("*/__init__.py")}
    assert packages - {name for names in pictured for name in names} == {"predicates"}


def test_the_picture_of_the_rooms_of_readers_is_what_is_checked(repository: Path) -> None:
    assert picture_of(repository, "mixed", "→") == layers_of(repository, "petastore.readers")


NOT_MIRRORED = {
    "needs Spark, which these programs and tests have": {
        "spark.caching.converter_cache": "tests/spark/caching/test_converter.py",
        "spark.classic": "tests/spark/one_session.py::connect_session",
        "spark.rdd": "tests/spark/frames.py",
        "spark.tensor_columns": "tests/spark/frames.py::make_spark_converter",
        "spark.training.__main__": "tests/spark/training/test_trainer.py::Trainer",
        "spark.training.exchange": "tests/spark/training/test_spool.py",
        "spark.writing.copy": "tests/spark/frames.py",
        "spark.writing.dataset_writer": "tests/spark/writing/by_tasks.py::materialize_dataset",
        "spark.writing.materialize": "tests/spark/scenario.py",
        "spark.writing.progress": "tests/spark/scenario.py",
    },
    "needs TensorFlow, which datasets are made with there": {
        "adapters.tensorflow.columns": "tests/adapters/tensorflow/test_crossing.py",
        "adapters.tensorflow.ragged_columns": "tests/adapters/tensorflow/test_dataset.py::RaggedTensorSpec",
        "adapters.tensorflow.received": "tests/adapters/tensorflow/test_dataset.py",
        "adapters.tensorflow.tensor_column": "tests/adapters/tensorflow/test_crossing.py::columns_of_field",
    },
    "needs what the neighbours have": {
        "adapters.asked_of_keras": "neighbours/keras/two_parts.py::make_tf_dataset",
        "adapters.jax.dtypes": "neighbours/jax/test_loader.py::jax_enable_x64",
        "adapters.jax.layout": "neighbours/jax/test_loader.py::NamedSharding",
        "adapters.jax.loader": "neighbours/jax/test_loader.py",
        "adapters.jax.tree": "neighbours/jax/test_tree.py::tree",
        "adapters.keras.distribution": "neighbours/keras/test_distribution.py::distribution",
        "adapters.torch.accelerated": "neighbours/torch/programs/prepared_by_accelerate.py::prepare",
        "interop.horovod_spark.asked": "neighbours/horovod/test_data_modules.py::with_options",
        "interop.horovod_spark.keras": "tests/interop/horovod_spark/test_data_modules.py",
        "interop.horovod_spark.lightning": "neighbours/horovod/test_data_modules.py",
        "interop.horovod_spark.store": "neighbours/horovod/estimators.py",
        "interop.horovod_spark.torch": "tests/interop/horovod_spark/test_data_modules.py",
    },
    "is a face of others: names, types, or what other classes are made of": {
        "adapters.distributed": "tests/distributed/test_gathering.py",
        "codecs.images.image_faces": "tests/codecs/images/test_image.py::CompressedImageCodec",
        "interop._path.petastorm": "tests/interop/test_petastorm.py::in_a_child",
        "interop.petastorm_names": "tests/interop/test_petastorm_modules.py",
        "readers.arguments": "tests/test_parameters.py",
        "work.pool": "tests/work/test_thread.py",
    },
    "is a law, and these are held to it": {
        "testing.cache_laws": "tests/cache/test_disk_cache.py",
        "testing.codec_laws": "tests/codecs/test_plain.py",
        "testing.dealing_laws": "tests/plan/order/test_dealing.py",
        "testing.filter_laws": "tests/plan/test_filter_laws.py",
        "testing.mixture_laws": "tests/plan/mixture/test_mixture.py",
        "testing.pool_laws": "tests/work/test_thread.py",
        "testing.training": "tests/testing/test_plan_laws.py",
    },
}
"""Modules without a test file of their own: why, and where each of them is tested, by which name if not by its own."""


def mirror_of(path: Path, repository: Path) -> Path:
    """Where the tests of a module are: `petastore/plan/unit.py` has `tests/plan/test_unit.py`."""
    inside = path.relative_to(repository / "petastore")
    return repository / "tests" / inside.parent / f"test_{inside.stem.strip('_')}.py"


def names_of(path: Path) -> list[str]:
    """What a module offers, as its `__all__` lists it."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(node, (ast.Assign, ast.AnnAssign)):
            return [str(name) for name in ast.literal_eval(node.value or ast.List([]))]
    return []


def test_each_module_has_its_tests_where_one_looks_for_them(repository: Path) -> None:
    elsewhere = {module for modules in NOT_MIRRORED.values() for module in modules}
    modules = [path for path in (repository / "petastore").rglob("*.py") if path.name != "__init__.py"]
    missing = {
        module_of(path, repository).removeprefix("petastore.")
        for path in modules
        if not mirror_of(path, repository).exists()
    }
    assert missing == elsewhere


def test_what_is_tested_elsewhere_is_named_there(repository: Path) -> None:
    for modules in NOT_MIRRORED.values():
        for module, file in modules.items():
            path = repository / "petastore" / f"{module.replace('.', '/')}.py"
            tests, _, name = file.partition("::")
            text = (repository / tests).read_text(encoding="utf-8")
            words = [name] if name else [f"petastore.{module}", *names_of(path)]
            assert any(re.search(rf"\b{re.escape(word)}\b", text) for word in words), f"{file} does not know {module}"
