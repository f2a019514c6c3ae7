"""Tests of modules with Petastorm's names: found and loaded lazily; renamed names raise with their replacement."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from petastore import make_batch_reader
from petastore.errors import LegacyNameError
from petastore.interop import petastorm
from petastore.interop.petastorm import STANDS_FOR, LegacyModule, LegacyModules
from petastore.interop.petastorm_names import NAMES, Instead


@pytest.fixture
def switched_on() -> Iterator[None]:
    petastorm.install()
    yield
    petastorm.uninstall()


def test_legacy_module_finder_finds_modules_only_below_petastorm(subtests: pytest.Subtests) -> None:
    finder = LegacyModules("petastorm")
    for inside in NAMES:
        with subtests.test(inside):
            spec = finder.find_spec(f"petastorm.{inside}".rstrip("."))
            assert spec is not None
            assert (spec.submodule_search_locations is not None) is (
                not inside or any(name.startswith(f"{inside}.") for name in NAMES)
            )
            assert finder.find_spec(f"another.{inside}") is None


@pytest.mark.usefixtures("switched_on")
def test_legacy_name_is_loaded_lazily_and_cached() -> None:
    module = importlib.import_module("petastorm.unischema")
    assert isinstance(module, LegacyModule)
    assert "Unischema" not in vars(module)
    assert module.Unischema is importlib.import_module("petastore.schema.unischema").Unischema
    assert vars(module)["Unischema"] is module.Unischema


@pytest.mark.usefixtures("switched_on")
def test_legacy_module_dir_equals_its_names() -> None:
    for inside, names in NAMES.items():
        module = importlib.import_module(f"petastorm.{inside}".rstrip("."))
        at_home = {name for name, entry in names.items() if isinstance(entry, str)}
        assert set(module.__all__) == at_home <= set(dir(module))
        assert not {name for name, entry in names.items() if isinstance(entry, Instead)} & set(dir(module))


@pytest.mark.usefixtures("switched_on")
def test_legacy_renamed_name_raises_with_its_replacement() -> None:
    module = importlib.import_module("petastorm.fs_utils")
    with pytest.raises(
        LegacyNameError,
        match=r"petastore has no petastorm.fs_utils.normalize_dir_url: make_reader and open_dataset accept URLs",
    ):
        _ = module.normalize_dir_url
    with pytest.raises(AttributeError, match=r"module 'petastorm.fs_utils' has no attribute 'Nothing', neither in"):
        _ = module.Nothing


@pytest.mark.usefixtures("switched_on")
def test_import_petastorm_makes_its_submodules_available() -> None:
    root = importlib.import_module("petastorm")
    assert root.__version__ == STANDS_FOR
    assert root.etl.dataset_metadata is sys.modules["petastorm.etl.dataset_metadata"]


@pytest.mark.usefixtures("switched_on")
def test_legacy_module_unpickles_without_the_import_hook() -> None:
    pickled = pickle.dumps(importlib.import_module("petastorm.ngram"))
    petastorm.uninstall()
    assert pickle.loads(pickled).NGram is importlib.import_module("petastore").NGram  # noqa: S301 - our own
    assert petastorm.is_installed()


def test_petastorm_import_hook_keeps_date_and_bool_partition_keys_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "day=2026-01-31" / "ok=true" / "n=7"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1]}), folder / "x.parquet")
    petastorm.install()
    try:
        reader = importlib.import_module("petastorm").make_batch_reader(str(tmp_path))
    finally:
        petastorm.uninstall()
    with reader:
        assert [next(reader).day.tolist(), next(reader, None)] == [["2026-01-31"], None]
        assert [reader.schema[key].dtype_name for key in ("day", "ok", "n")] == ["str", "str", "int64"]
    with make_batch_reader(str(tmp_path)) as reader:
        assert [reader.schema[key].dtype_name for key in ("day", "ok", "n")] == ["datetime64[D]", "bool", "int64"]
