"""Tests of the `Reader` class: few methods, one subclass, composition instead of overriding."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

import petastore
from petastore import NGram, Unischema, UnischemaField, WeightedSamplingReader
from petastore.readers.reader import Reader


@functools.cache
def classes_of(package: Path) -> dict[str, ast.ClassDef]:
    """Return all classes of a package by name."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")]
    return {node.name: node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def below(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the names of all direct and indirect subclasses."""
    direct = {
        other for other, node in classes.items() if any(ast.unparse(base).split(".")[-1] == name for base in node.bases)
    }
    return direct.union(*(below(other, classes) for other in direct))


def test_weighted_sampling_reader_is_the_only_subclass_of_reader(repository: Path) -> None:
    assert below("Reader", classes_of(repository / "petastore")) == {"WeightedSamplingReader"}


def test_reader_class_has_few_methods_and_its_module_few_imports(repository: Path) -> None:
    (path,) = (repository / "petastore").rglob("readers/reader.py")
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (reader,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    methods = [node.name for node in reader.body if isinstance(node, ast.FunctionDef)]
    imports = [
        node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and str(node.module).startswith("petastore")
    ]
    assert len(methods) <= 25
    assert len(imports) <= 14


def test_reader_classes_do_not_override_new(repository: Path) -> None:
    makers = [
        name
        for name, node in classes_of(repository / "petastore" / "readers").items()
        if any(isinstance(member, ast.FunctionDef) and member.name == "__new__" for member in node.body)
    ]
    assert makers == []


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("one_reader")
    schema = Unischema("ids", [UnischemaField("id", "int64"), UnischemaField("text", str)])
    urls = [str(folder / name) for name in ("a", "b")]
    for url in urls:
        petastore.write_dataset(url, schema, [{"id": i, "text": "x"} for i in range(10)], rows_per_row_group=3)
    return urls


def test_rows_windows_and_mixtures_are_read_by_the_same_class(urls: list[str]) -> None:
    asked = NGram({0: ["id", "text"], 1: ["id"]}, 1, "id")
    readers = [
        petastore.make_reader(urls[0]),
        petastore.make_reader(urls[0], asked),
        petastore.make_batch_reader(urls[0], asked),
        petastore.make_mixed_reader(urls, [1, 1]),
    ]
    for reader in readers:
        with reader:
            assert type(reader) is Reader


def test_reader_ngram_is_none_unless_it_reads_windows(urls: list[str]) -> None:
    with petastore.make_reader(urls[0], NGram({0: ["id"], 1: ["text"]}, 1, "id")) as reader:
        assert reader.ngram is not None
        assert reader.windows is not None
        assert list(reader.row_schema.fields) == ["id", "text"]
    with petastore.make_reader(urls[0]) as reader:
        assert reader.ngram is None
        assert reader.windows is None
        assert reader.row_schema == reader.schema


def test_weighted_sampling_reader_mixes_windows(urls: list[str]) -> None:
    readers = [petastore.make_reader(url, NGram({0: ["id"], 1: ["id"]}, 1, "id")) for url in urls]
    with WeightedSamplingReader(readers, [1, 1]) as reader:
        assert type(reader) is WeightedSamplingReader
        windows = list(reader)
        assert len(windows) == len(reader) > 0
        assert {window[1].id - window[0].id for window in windows} == {1}
