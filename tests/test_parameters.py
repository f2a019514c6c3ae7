"""Tests of parameters: options are passed by name or as typed objects, never as untyped dicts, and signatures agree."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.torch import MapDataset, ReaderDataset
from petastore.readers.option_signatures import names_of
from petastore.readers.options import DatasetOptions, RowOptions

OF_DATASET = {*names_of(DatasetOptions), *names_of(RowOptions)}
"""Parameters that select a dataset and its rows."""

PACKAGE = Path(petastore.__file__).parent
OF_ANYTHING = {"Any", "object"}

DICTS_OF_OTHERS = {
    # Rows; their fields are those of the user's schema.
    "Unischema.make_namedtuple",
    # The user's `storage_options` for fsspec.
    "_from_fsspec",
    "FsspecStore.fs",
    "http_settings",
    # Options of Arrow's S3 filesystem, made from `storage_options`.
    "s3_settings",
    "make_child_filesystem",
    # File information and credentials in obstore's format.
    "_version_in",
    "_listed",
    "constant_credentials",
    # Arguments that fsspec passes to the methods of a filesystem.
    *(f"FaultyFileSystem.{name}" for name in ("__init__", "info", "ls", "cat_file", "open")),
    *(f"FaultyFileSystem.{name}" for name in ("pipe_file", "mkdir", "mv", "rm")),
    # Configuration that BigDL Orca passes to a data creator function.
    "from_orca_config",
    # The user's options for fsspec, in another process.
    "_fsspec_files",
    # JSON: codec configurations in schema documents, states, and facts that ranks exchange.
    "codec_from_json",
    "ReaderDataset._adopt",
    "resume",
    "_begun_with_more_rows",
    "resume_place",
    "_resumed_mixture",
    "_agreed_order",
    "assert_agreed",
    # Arguments that Horovod's estimators, and their users, pass to data modules and stores.
    "PetastoreDataModule.__init__",
    "EstimatorDataModule._loader",
    "EstimatorDataModule.with_options",
    "PetastoreStore.__init__",
    "PetastoreStore.create",
    # Arguments that Python passes.
    "DataframeColumnCodec.__init_subclass__",
}
"""Functions that take or unpack a dict of the user or of a file, which does not hold petastore's parameters."""


def _is_of_anything(annotation: ast.expr | None) -> bool:
    """Return whether an annotation contains a dict with values of any type."""
    return any(
        isinstance(part, ast.Subscript)
        and ast.unparse(part.value) in {"dict", "Mapping", "MutableMapping"}
        and isinstance(part.slice, ast.Tuple)
        and ast.unparse(part.slice.elts[1]) in OF_ANYTHING
        for part in ast.walk(annotation or ast.Constant(None))
    )


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the functions and methods of a module, with their names."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from _functions(node, f"{node.name}." if isinstance(node, ast.ClassDef) else within)


def _untyped_attributes(trees: list[ast.Module]) -> set[str]:
    """Return the names of attributes that are untyped dicts, and of functions and methods that return one."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    of_classes = [part for node in nodes if isinstance(node, ast.ClassDef) for part in node.body]
    assigned = [node for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute)]
    fields = {
        ast.unparse(node.target).removeprefix("self.")
        for node in [*of_classes, *assigned]
        if isinstance(node, ast.AnnAssign) and _is_of_anything(node.annotation)
    }
    return fields | {node.name for node in nodes if isinstance(node, ast.FunctionDef) and _is_of_anything(node.returns)}


def _faults(function: ast.FunctionDef, attributes: set[str], own: set[str]) -> Iterator[str]:
    """Yield the places where a function takes parameters as an untyped dict, or passes one on.

    Args:
        function: The function to check.
        attributes: Names of attributes, methods and functions that are or return untyped dicts.
        own: Names of functions of the same module.
    """
    arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    further = function.args.kwarg
    if further is not None and (further.annotation is None or ast.unparse(further.annotation) in OF_ANYTHING):
        yield f"takes **{further.arg}"
    untyped = {argument.arg for argument in arguments if _is_of_anything(argument.annotation)}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in untyped:
            if isinstance(node.slice, ast.Constant):
                yield f"reads {ast.unparse(node)}"
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg is None:
                    yield from _unpacked(keyword.value, untyped, attributes, own)


def _unpacked(given: ast.expr, untyped: set[str], attributes: set[str], own: set[str]) -> Iterator[str]:
    """Yield a fault if an untyped dict, which the function did not make, is unpacked into a call."""
    for part in ast.walk(given):
        is_parameter = isinstance(part, ast.Name) and part.id in untyped
        is_attribute = isinstance(part, ast.Attribute) and part.attr in attributes
        made_by = ast.unparse(part.func) if isinstance(part, ast.Call) else None
        is_made_elsewhere = made_by in attributes and made_by not in own
        if is_parameter or is_attribute or is_made_elsewhere:
            yield f"unpacks {ast.unparse(given)}"
            return


def untyped_parameters(sources: dict[str, str]) -> dict[str, list[str]]:
    """Return how each function of some modules takes or passes parameters as an untyped dict."""
    trees = {name: ast.parse(source) for name, source in sources.items()}
    attributes = _untyped_attributes(list(trees.values()))
    found: dict[str, list[str]] = {}
    for tree in trees.values():
        own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        for name, function in _functions(tree):
            faults = list(_faults(function, attributes, own))
            if faults:
                found.setdefault(name, []).extend(faults)
    return found


def test_modules_of_petastore_pass_no_untyped_keyword_dicts() -> None:
    sources = {str(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = untyped_parameters(sources)
    assert {name: faults for name, faults in found.items() if name not in DICTS_OF_OTHERS} == {}
    assert DICTS_OF_OTHERS - set(found) == set()  # each entry of the list is needed


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def opened(url, asked: dict[str, Any]): return plan(**asked)", "opened"),
        ("def opened(url, asked: Mapping[str, object] | None): return plan(url, **(asked or {}))", "opened"),
        ("def opened(url, rows: Mapping[str, Any]): return rows['filters']", "opened"),
        ("def opened(url, **how: Any): return url", "opened"),
        ("def opened(url, **how): return url", "opened"),
        ("class Source:\n  rows: Mapping[str, Any]\ndef opened(source): return select(**source.rows)", "opened"),
        ("class Source:\n  def opened(self, **how: Any): return 1", "Source.opened"),
    ],
)
def test_check_for_untyped_keyword_dicts_detects_them(source: str, name: str) -> None:
    assert list(untyped_parameters({"module": source})) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "def opened(url, asked: PlanOptions): return plan(asked)",
        "def opened(url, **how: Unpack[ReaderKwargs]): return make(**how)",
        "def session(**conf: str): return build(**conf)",
        "def joined(parts: Sequence[int]):\n  arrays = {}\n  return Statistics(**arrays)",
        "def opened(url, storage_options: Mapping[str, Any]): return open(url, storage_options)",
    ],
)
def test_untyped_keyword_dict_check_accepts_typed_or_forwarded_options(source: str) -> None:
    assert untyped_parameters({"module": source}) == {}


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _typed_dicts() -> dict[str, dict[str, str]]:
    """Return the keys and types of each `TypedDict` of reader options, including inherited keys."""
    files = [PACKAGE / "plan/request.py", PACKAGE / "readers/options.py"]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))]
    found: dict[str, dict[str, str]] = {"TypedDict": {}}
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any(keyword.arg == "total" for keyword in node.keywords):
            fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
            own = {ast.unparse(field.target): ast.unparse(field.annotation) for field in fields}
            found[node.name] = {
                key: kind for base in node.bases for key, kind in found[ast.unparse(base)].items()
            } | own
    return found


@pytest.mark.parametrize(
    ("function", "table"),
    [
        (petastore.make_reader, "ReaderKwargs"),
        (petastore.make_batch_reader, "BatchReaderKwargs"),
        (petastore.make_mixed_reader, "MixKwargs"),
        (ReaderDataset, "ThreadKwargs"),
        (MapDataset, "MapKwargs"),
    ],
)
def test_typed_dicts_for_type_checkers_equal_the_function_signatures(function: Callable[..., Any], table: str) -> None:
    explicit = {
        "dataset_url",
        "dataset_url_or_urls",
        "schema_fields",
        "sources",
        "weights",
        "stop",
        "batching",
        "source_column",
        "dataset",
        "batch_size",
        "cache_bytes",
        "ragged",
        "nulls",
        "selection",
    }
    signature = {name: each.annotation for name, each in _parameters(function).items() if name not in explicit}
    assert signature == _typed_dicts()[table]


def test_each_parameter_is_described_in_help() -> None:
    text = petastore.make_reader.__doc__ or ""
    assert [name for name in _parameters(petastore.make_reader) if f"        {name}: " not in text] == []
    assert "{options}" not in text


def test_docstring_of_make_reader_groups_parameters_by_topic() -> None:
    sections = re.findall(r"^ {4}Args: (.*)$", petastore.make_reader.__doc__ or "", re.MULTILINE)
    assert sections == [
        "Epochs and sharding",
        "Shuffling",
        "Filtering",
        "Bad rows",
        "Workers and memory",
        "Monitoring",
        "Cache",
        "Storage",
        "Deprecated",
    ]


@pytest.mark.parametrize(
    "function",
    [petastore.make_reader, petastore.make_batch_reader, petastore.make_mixed_reader, ReaderDataset, MapDataset],
)
def test_functions_that_open_datasets_take_all_reader_options(function: Callable[..., Any]) -> None:
    assert len(OF_DATASET) == 16
    assert OF_DATASET - set(_parameters(function)) == set()


@pytest.mark.parametrize("function", [petastore.make_mixed_reader, ReaderDataset, MapDataset])
def test_shared_make_reader_parameters_have_the_same_type_and_default(function: Callable[..., Any]) -> None:
    readers, here = _parameters(petastore.make_reader), _parameters(function)
    both = sorted(set(readers) & set(here) - {"schema_fields"})
    assert len(both) >= 8
    for name in both:
        assert here[name].annotation == readers[name].annotation, name
        assert here[name].default == readers[name].default, name


def test_options_with_secrets_are_not_shown() -> None:
    ask = DatasetOptions("https://host/data?signature=SECRET", storage_options={"key": "SECRET"}, filesystem="SECRET")
    assert "SECRET" not in repr(ask)


def test_mixture_source_options_equal_the_options_of_make_mixed_reader() -> None:
    of_source = _typed_dicts()["SourceArguments"]
    assert of_source.pop("dataset_url") == "Required[Urls | Dataset]"
    assert of_source == {name: _parameters(petastore.make_mixed_reader)[name].annotation for name in OF_DATASET}
