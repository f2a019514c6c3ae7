"""Tests of the `petastorm` import hook and of legacy names in `petastore`: same objects, loaded lazily."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import petastore
from petastore.errors import InvalidArgumentError, LegacyNameError
from petastore.interop import petastorm as switch
from petastore.interop.petastorm_names import NAMES, Instead

# Names that users of Petastorm 0.13.1 can import, collected from its documentation and modules.
KNOWN = {
    "": "make_reader make_batch_reader NoDataAvailableError TransformSpec",
    "reader": "Reader make_reader make_batch_reader normalize_dataset_url_or_urls NULL_CACHE LOCAL_DISK_CACHE",
    "unischema": "Unischema UnischemaField dict_to_spark_row insert_explicit_nulls match_unischema_fields",
    "codecs": "DataframeColumnCodec ScalarCodec NdarrayCodec CompressedNdarrayCodec CompressedImageCodec",
    "predicates": "PredicateBase in_set in_intersection in_lambda in_negate in_reduce in_pseudorandom_split",
    "selectors": "RowGroupSelectorBase SingleIndexSelector IntersectIndexSelector UnionIndexSelector",
    "ngram": "NGram",
    "transform": "TransformSpec edit_field transform_schema",
    "weighted_sampling_reader": "WeightedSamplingReader",
    "pytorch": "DataLoader BatchedDataLoader InMemBatchedDataLoader LoaderBase decimal_friendly_collate",
    "tf_utils": "make_petastorm_dataset tf_tensors RANDOM_SHUFFLING_QUEUE_SIZE",
    "spark": "make_spark_converter SparkDatasetConverter",
    "spark.spark_dataset_converter": "make_spark_converter SparkDatasetConverter register_delete_dir_handler",
    "spark_utils": "dataset_as_rdd",
    "etl": "RowGroupIndexerBase",
    "etl.dataset_metadata": "materialize_dataset get_schema get_schema_from_dataset_url infer_or_load_unischema "
    "load_row_groups PetastormMetadataError PetastormMetadataGenerationError",
    "etl.legacy": "RestrictedUnpickler restricted_loads depickle_legacy_package_name_compatible",
    "etl.metadata_util": "",
    "etl.petastorm_generate_metadata": "generate_petastorm_metadata main",
    "etl.rowgroup_indexers": "SingleFieldIndexer FieldNotNullIndexer",
    "etl.rowgroup_indexing": "build_rowgroup_index get_row_group_indexes",
    "errors": "NoDataAvailableError",
    "utils": "decode_row DecodeFieldError run_in_subprocess add_to_dataset_metadata",
    "generator": "generate_datapoint",
    "cache": "CacheBase NullCache",
    "local_disk_cache": "LocalDiskCache",
    "fs_utils": "FilesystemResolver get_filesystem_and_path_or_paths normalize_dir_url get_dataset_path",
    "hdfs.namenode": "HdfsNamenodeResolver HdfsConnector HAHdfsClient MaxFailoversExceeded HdfsConnectError",
    "benchmark.throughput": "reader_throughput BenchmarkResult ReadMethod WorkerPoolType",
    "benchmark.dummy_reader": "DummyReader",
    "tools.copy_dataset": "copy_dataset main",
    "tools.spark_session_cli": "configure_spark add_configure_spark_arguments",
    "reader_impl.shuffling_buffer": "NoopShufflingBuffer RandomShufflingBuffer",
    "reader_impl.pytorch_shuffling_buffer": "BatchedNoopShufflingBuffer BatchedRandomShufflingBuffer",
    "reader_impl.pickle_serializer": "PickleSerializer",
    "reader_impl.arrow_table_serializer": "ArrowTableSerializer",
    "pyarrow_helpers.batching_table_queue": "BatchingTableQueue",
    "workers_pool": "EmptyResultError TimeoutWaitingForResultError VentilatedItemProcessedMessage",
    "workers_pool.thread_pool": "ThreadPool",
    "workers_pool.process_pool": "ProcessPool",
    "workers_pool.dummy_pool": "DummyPool",
    "workers_pool.ventilator": "ConcurrentVentilator",
    "workers_pool.worker_base": "WorkerBase",
    "test_util.reader_mock": "ReaderMock",
    "test_util.shuffling_analysis": "generate_shuffle_analysis_dataset compute_correlation_distribution",
}
PAIRS = [(inside, name) for inside, names in KNOWN.items() for name in names.split()]
AT_HOME = [(inside, name) for inside, names in NAMES.items() for name, entry in names.items() if isinstance(entry, str)]
ELSEWHERE = [
    (inside, name, entry)
    for inside, names in NAMES.items()
    for name, entry in names.items()
    if isinstance(entry, Instead)
]


@pytest.fixture
def switched() -> Iterator[None]:
    """Install the import hook for one test, so that `import petastorm` gives petastore."""
    switch.install()
    yield
    switch.uninstall()


def module_of(root: str, inside: str) -> ModuleType:
    return importlib.import_module(f"{root}.{inside}" if inside else root)


def test_each_name_of_petastorm_exists_or_has_a_documented_reason() -> None:
    assert [pair for pair in PAIRS if pair[1] not in NAMES.get(pair[0], {})] == []
    assert set(KNOWN) <= set(NAMES)


@pytest.mark.usefixtures("switched")
def test_name_imported_from_petastorm_is_the_petastore_object(subtests: pytest.Subtests) -> None:
    assert len(AT_HOME) > 60
    check_names_at_home([pair for pair in AT_HOME if pair[0] != "tf_utils"], subtests)


@pytest.mark.slow
@pytest.mark.tf
@pytest.mark.usefixtures("switched")
def test_petastorm_tf_utils_name_is_the_petastore_object(subtests: pytest.Subtests) -> None:
    check_names_at_home([pair for pair in AT_HOME if pair[0] == "tf_utils"], subtests)


def check_names_at_home(pairs: list[tuple[str, str]], subtests: pytest.Subtests) -> None:
    assert pairs
    for inside, name in pairs:
        with subtests.test(f"{inside}.{name}"):
            home, _, attribute = str(NAMES[inside][name]).partition(":")
            ours = getattr(importlib.import_module(home), attribute)
            assert getattr(module_of("petastorm", inside), name) is ours
            assert getattr(module_of("petastore", inside), name) is ours


@pytest.mark.usefixtures("switched")
def test_missing_petastorm_name_error_names_its_replacement(subtests: pytest.Subtests) -> None:
    assert len(ELSEWHERE) > 50
    for inside, name, entry in ELSEWHERE:
        with subtests.test(f"{inside}.{name}"):
            with pytest.raises(LegacyNameError) as caught:
                exec(f"from {f'petastorm.{inside}'.rstrip('.')} import {name}")  # noqa: S102 - what users write
            assert entry.advice in str(caught.value)
            assert name in str(caught.value)


def test_unknown_petastorm_name_raises_import_error(switched: None) -> None:
    module = module_of("petastorm", "unischema")
    assert not hasattr(module, "Unischemata")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'petastorm.unischemata'"):
        importlib.import_module("petastorm.unischemata")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'petastore.unischemata'"):
        importlib.import_module("petastore.unischemata")


def test_petastorm_submodules_are_attributes_of_their_package(switched: None) -> None:
    root = importlib.import_module("petastorm")
    assert root.etl.dataset_metadata.materialize_dataset is petastore.materialize_dataset
    assert root.__version__ == "0.13.1"
    assert "Unischema" in dir(root.unischema)
    assert root.unischema.__all__ == sorted(root.unischema.__all__)


def test_petastorm_import_hook_installs_once_and_uninstalls() -> None:
    before = list(sys.meta_path)
    switch.install()
    switch.install()
    assert len(sys.meta_path) == len(before) + 1
    importlib.import_module("petastorm.etl.dataset_metadata")
    switch.uninstall()
    switch.uninstall()
    assert sys.meta_path == before
    assert [name for name in sys.modules if name.split(".")[0] == "petastorm"] == []


def test_petastorm_import_hook_raises_if_petastorm_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ModuleType("petastorm")
    real.__file__ = "/somewhere/petastorm/__init__.py"
    monkeypatch.setitem(sys.modules, "petastorm", real)
    with pytest.raises(
        InvalidArgumentError,
        match=r"the original petastorm is already imported, from /somewhere/petastorm/__init__\.py, and its",
    ):
        switch.install()
    assert not switch.is_installed()
    switch.uninstall()
    assert sys.modules["petastorm"] is real


def test_petastorm_pickle_loads_without_the_import_hook(switched: None) -> None:
    unischema = importlib.import_module("petastorm.unischema")
    schema = unischema.Unischema("user", [unischema.UnischemaField("id", "int64")])
    assert b"petastorm" not in pickle.dumps(schema)
    assert pickle.loads(pickle.dumps(schema)) == schema  # noqa: S301 - made on the line above


def test_pickled_petastorm_module_installs_the_import_hook(switched: None) -> None:
    """With cloudpickle, a pickled function of a user contains the modules that it refers to."""
    pickled = pickle.dumps(importlib.import_module("petastorm.unischema"))
    program = (
        "import pickle, sys\n"
        "module = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "print(module.__name__, module.Unischema.__module__)\n"
    )
    assert _python("-c", program, pickled.hex()) == "petastorm.unischema petastore.schema.unischema\n"


def test_import_petastore_does_not_load_petastorm_interop() -> None:
    program = (
        "import sys, petastore\n"
        "print([name for name in sys.modules if name.startswith('petastore.interop')])\n"
        "from petastore.unischema import Unischema\n"
        "import petastore.etl.dataset_metadata\n"
        "print(Unischema is petastore.Unischema, 'petastorm' in sys.modules)\n"
    )
    assert _python("-c", program) == "[]\nTrue False\n"


def test_petastorm_modules_of_petastore_import_without_the_hook() -> None:
    folder = Path(petastore.__file__).parent
    for name in ("codecs", "errors", "spark"):
        assert folder in Path(str(importlib.import_module(f"petastore.{name}").__file__)).parents


SCRIPT = """
import concurrent.futures, multiprocessing, sys
from petastorm.unischema import Unischema
import local_to_the_script
def in_a_child(_):
    import petastorm.codecs
    return petastorm.codecs.ScalarCodec.__module__
if __name__ == "__main__":
    print(sys.argv, __name__, Unischema.__module__)
    with concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        print(*pool.map(in_a_child, [0]))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Write a program that imports only Petastorm, with another module in its folder, and return its path."""
    (tmp_path / "local_to_the_script.py").write_text("")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def _python(*arguments: str, cwd: Path | None = None) -> str:
    command = [sys.executable, "-W", "error", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=cwd).stdout


def test_petastorm_script_and_its_children_run_unchanged(script: Path) -> None:
    said = _python("-m", "petastore.interop.petastorm", str(script), "--epochs", "3")
    assert said == f"['{script}', '--epochs', '3'] __main__ petastore.schema.unischema\npetastore.codecs.scalar\n"


def test_petastorm_module_runs_unchanged(script: Path) -> None:
    said = _python("-m", "petastore.interop.petastorm", "-m", "train", "3", cwd=script.parent)
    assert said == f"['{script}', '3'] __main__ petastore.schema.unischema\npetastore.codecs.scalar\n"


def test_petastorm_commands_report_their_replacement() -> None:
    with pytest.raises(
        SystemExit,
        match=r"petastorm\.etl\.metadata_util: use petastore's commands instead of Petastorm's programs: inspect",
    ):
        switch.main(["-m", "petastorm.etl.metadata_util", "--dataset-url", "file:///x"])
    assert not switch.is_installed()


def test_petastorm_runner_without_arguments_prints_usage() -> None:
    with pytest.raises(SystemExit, match=r"usage: python -m petastore.interop.petastorm SCRIPT"):
        switch.main([])
    assert not switch.is_installed()
