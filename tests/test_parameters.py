"""Parameters go between modules as values or by name: no dict of them, in which a type checker sees nothing."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.adapters.torch import MapDataset, ReaderDataset
from petastore.dataset import Dataset
from petastore.plan.request import OrderAsk
from petastore.readers.arguments import FurtherArguments, ReaderArguments, SourceArguments
from petastore.readers.asked import CacheAsk, DatasetAsk, RowsAsk
from petastore.selecting.retired import Retired

ASKED = {field.name for value in (DatasetAsk, CacheAsk, RowsAsk) for field in dataclasses.fields(value)} - {
    "url",
    "cache",
}
"""What is asked of a dataset, and of its rows."""

PACKAGE = Path(petastore.__file__).parent
OF_ANYTHING = {"Any", "object"}

DICTS_OF_OTHERS = {
    # Rows, whose fields the user's schema has.
    "Unischema.make_namedtuple",
    # `storage_options` of users, for fsspec.
    "_from_fsspec",
    "FsspecClient._store",
    "s3_file_system",
    "S3FileSystem.__init__",
    "S3FileSystem.s3fs",
    "S3FileSystem.info",
    "S3FileSystem.cat_file",
    "_unpickled_s3",
    # What obstore says of a file, and credentials in its words.
    "ObstoreClient._version_of",
    "_fsspec_info",
    "given",
    # What BigDL Orca gives to a function that makes data.
    "from_orca_config",
    # Options of users, for fsspec, in another process.
    "_made_again",
    # JSON: a codec's configuration in a schema document, states, and the facts that ranks tell each other.
    "codec_from_json",
    "ReaderDataset._adopt",
    "resume",
    "resume_place",
    "_resumed_mixture",
    "_agreed_order",
    "assert_agreed",
    # Arguments of an operation of TensorFlow's, made and kept in the class that calls it.
    "_quick_class",
    "QuickIterator.__next__",
    # What Horovod's estimators tell their data modules and stores, and users these modules beyond that.
    "Asked._reader",
    "Asked.of",
    "PetastoreDataModule.__init__",
    "PetastoreDataModule._loader",
    "TakesOptions.with_options",
    "PetastoreStore.__init__",
    "PetastoreStore.create",
    "WithOptions.__call__",
    # What Python itself gives.
    "DataframeColumnCodec.__init_subclass__",
}
"""Functions that are given, or unpack, a dict which is the user's or a file's: no parameters of ours."""


def _is_of_anything(annotation: ast.expr | None) -> bool:
    """Whether an annotation says of a dict that it has values of any type."""
    return any(
        isinstance(part, ast.Subscript)
        and ast.unparse(part.value) in {"dict", "Mapping", "MutableMapping"}
        and isinstance(part.slice, ast.Tuple)
        and ast.unparse(part.slice.elts[1]) in OF_ANYTHING
        for part in ast.walk(annotation or ast.Constant(None))
    )


def _functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    """The functions and methods of a module, by name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield within + node.name, node
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield from _functions(node, f"{node.name}." if isinstance(node, ast.ClassDef) else within)


def _untyped_attributes(trees: list[ast.Module]) -> set[str]:
    """Names of attributes, methods and functions that are, or return, dicts of anything."""
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
    """Where a function is given parameters as a dict of anything, or hands them over as one.

    Args:
        function: Which.
        attributes: Names of attributes, methods and functions that are dicts of anything.
        own: Functions of the same module.
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
    """Whether what is unpacked into a call is a dict of anything that came from elsewhere."""
    for part in ast.walk(given):
        is_parameter = isinstance(part, ast.Name) and part.id in untyped
        is_attribute = isinstance(part, ast.Attribute) and part.attr in attributes
        made_by = ast.unparse(part.func) if isinstance(part, ast.Call) else None
        is_made_elsewhere = made_by in attributes and made_by not in own
        if is_parameter or is_attribute or is_made_elsewhere:
            yield f"unpacks {ast.unparse(given)}"
            return


def untyped_parameters(sources: dict[str, str]) -> dict[str, list[str]]:
    """Of each function in some modules that takes or gives parameters as a dict of anything: how."""
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


def test_no_module_gives_another_one_a_dict_of_parameters() -> None:
    sources = {str(path): path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    found = untyped_parameters(sources)
    assert {name: faults for name, faults in found.items() if name not in DICTS_OF_OTHERS} == {}
    assert DICTS_OF_OTHERS - set(found) == set()  # the list says no more than it must


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
def test_a_dict_of_parameters_is_found(source: str, name: str) -> None:
    assert list(untyped_parameters({"module": source})) == [name]


@pytest.mark.parametrize(
    "source",
    [
        "def opened(url, asked: PlanAsk): return plan(asked)",
        "def opened(url, **how: Unpack[ReaderArguments]): return make(**how)",
        "def session(**conf: str): return build(**conf)",
        "def joined(parts: Sequence[int]):\n  arrays = {}\n  return Statistics(**arrays)",
        "def opened(url, storage_options: Mapping[str, Any]): return open(url, storage_options)",
    ],
)
def test_what_is_typed_or_handed_on_whole_is_none(source: str) -> None:
    assert untyped_parameters({"module": source}) == {}


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function).parameters)


def _table(arguments: Any) -> dict[str, str]:
    """Of a `TypedDict`: name to type, as it is written."""
    return {name: kind.__forward_arg__ for name, kind in arguments.__annotations__.items()}


def test_arguments_of_readers_are_those_of_one_table() -> None:
    of_batches = _parameters(petastore.make_batch_reader)
    of_rows = _parameters(petastore.make_reader)
    del of_batches["dataset_url_or_urls"], of_rows["dataset_url"]
    assert {name: each.annotation for name, each in of_batches.items()} == _table(ReaderArguments)
    assert of_rows.pop("pyarrow_serialize").annotation == "bool"
    assert list(of_rows.values()) == list(of_batches.values())  # names, types, defaults and order
    assert set(ReaderArguments.__annotations__) - set(FurtherArguments.__annotations__) == {
        "num_epochs",
        "workers_count",
    }


@pytest.mark.parametrize(
    "function",
    [petastore.make_reader, petastore.make_batch_reader, petastore.make_mixed_reader, ReaderDataset, MapDataset],
)
def test_whoever_opens_a_dataset_takes_all_that_is_asked_of_it_and_of_its_rows(function: Callable[..., Any]) -> None:
    assert len(ASKED) == 12
    assert ASKED - set(_parameters(function)) == set()


@pytest.mark.parametrize("function", [petastore.make_mixed_reader, ReaderDataset, MapDataset, Dataset.plan])
def test_what_has_the_name_of_a_readers_parameter_is_the_same_there(function: Callable[..., Any]) -> None:
    readers, here = _parameters(petastore.make_reader), _parameters(function)
    both = sorted(set(readers) & set(here) - {"schema_fields"})
    assert len(both) >= 8
    for name in both:
        assert here[name].annotation == readers[name].annotation, name
        # A plan is a value, and says itself what its last batch is.
        assert here[name].default == readers[name].default or (function is Dataset.plan and name == "last_batch"), name


@pytest.mark.parametrize("value", [OrderAsk, RowsAsk, DatasetAsk, CacheAsk, Retired])
def test_a_value_has_the_types_and_defaults_of_the_parameters_that_it_holds(value: Any) -> None:
    readers = _parameters(petastore.make_reader)
    fields = [field for field in dataclasses.fields(value) if field.name not in {"url", "cache"}]
    assert len(fields) >= 3
    assert {field.name: (field.type, field.default) for field in fields} == {
        field.name: (readers[field.name].annotation, readers[field.name].default) for field in fields
    }


def test_what_may_hold_a_secret_is_not_shown() -> None:
    ask = DatasetAsk("https://host/data?signature=SECRET", {"key": "SECRET"}, "SECRET")
    assert "SECRET" not in repr(ask)


def test_a_source_of_a_mixture_says_what_the_mixture_says_for_all() -> None:
    mixed = _parameters(petastore.make_mixed_reader)
    of_source = {name: kind.__forward_arg__ for name, kind in SourceArguments.__annotations__.items()}
    assert of_source.pop("dataset_url") == "Required[Urls | Dataset]"
    assert of_source == {name: mixed[name].annotation for name in of_source}
    assert set(of_source) == ASKED
