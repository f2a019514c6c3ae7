"""Tests of error messages of public parameters: all have the form "`x` must be …, got …. Do …"."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import petastore
from petastore.codecs import ArrowCodec, CompressedImageCodec, ImageDecode, NdarrayCodec, ScalarCodec
from petastore.distributed import Shard
from petastore.errors import InvalidArgumentError, SchemaError
from petastore.expressions import col
from petastore.indexing import FieldNotNullIndexer, SingleFieldIndexer
from petastore.predicates import in_intersection, in_lambda, in_negate, in_pseudorandom_split, in_reduce, in_set
from petastore.selectors import SingleIndexSelector, UnionIndexSelector
from petastore.spark import make_spark_converter, materialize_dataset

SCHEMA = petastore.Unischema(
    "rows",
    [
        petastore.UnischemaField("id", "int64"),
        petastore.UnischemaField("image", "uint8", (4, 4, 3), CompressedImageCodec("png")),
        petastore.UnischemaField("track", "int32", (None,), NdarrayCodec()),
        petastore.UnischemaField("age", "int64", nullable=True),
    ],
)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write a dataset with an image, an array of variable shape, and null values."""
    folder = str(tmp_path_factory.mktemp("form") / "rows")
    image = np.zeros((4, 4, 3), np.uint8)
    rows = [
        {"id": n, "image": image, "track": np.arange(n % 3, dtype=np.int32), "age": None if n % 2 else n}
        for n in range(20)
    ]
    petastore.write_dataset(folder, SCHEMA, rows)
    return folder


def _given(parameter: str, value: Any) -> Any:
    return {parameter: value}


def form_of(message: str, parameter: str) -> bool:
    """Return whether a message begins with the parameter (of a class, or of a field) and its rule."""
    return re.match(rf"(field '\w+': )?{re.escape(parameter)}( of \w+)? must ", message) is not None


READER: list[tuple[str, Any]] = [
    ("schema_fields", "id"),
    ("schema_fields", ["id", 5]),
    ("schema_fields", ["nope"]),
    ("schema_fields", []),
    ("schema_fields", 5),
    ("reader_pool_type", "procs"),
    ("workers_count", 0),
    ("workers_count", "two"),
    ("seed", "x"),
    ("seed", 1.5),
    ("shuffle_rows", "yes"),
    ("shuffle_row_groups", "no"),
    ("predicate", 5),
    ("rowgroup_selector", 5),
    ("num_epochs", 0),
    ("num_epochs", 1.5),
    ("last_batch", "odd"),
    ("cache_type", "disk"),
    ("transform_spec", 5),
    ("filters", 5),
    ("filters", [("id", "~", 3)]),
    ("filters", [("nope", "=", 3)]),
    ("filters", [("id", "=", "a")]),
    ("filters", [("image", "=", 3)]),
    ("filters", col("id")),
    ("storage_options", "key"),
    ("filesystem", "s3"),
    ("storage_timeout", 0),
    ("decode", "x"),
    ("decode", {"id": ImageDecode(size=(2, 2))}),
    ("decode", {"image": 5}),
    ("decode", {"nope": ImageDecode(size=(2, 2))}),
    ("filter_cache", 5),
    ("memory_budget", "x"),
    ("memory_budget", -1),
    ("max_cell_bytes", "x"),
    ("shuffle_buffer_bytes", "x"),
    ("interleave", 0),
    ("shuffle_block_rows", 0),
    ("reshuffle_each_epoch", "x"),
    ("provenance", "x"),
    ("results_queue_size", 0),
    ("shuffle_row_drop_partitions", 0),
    ("hdfs_driver", "x"),
]
"""Parameters of all readers, each with an invalid value."""


@pytest.mark.parametrize(("parameter", "value"), READER)
def test_error_of_reader_options_names_parameter_and_rule(url: str, parameter: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        petastore.make_reader(url, **_given(parameter, value))
    assert form_of(str(caught.value), parameter)


@pytest.mark.parametrize(
    ("parameter", "options"),
    [
        ("cur_shard", {"cur_shard": 3, "shard_count": 2}),
        ("cur_shard", {"cur_shard": -1, "shard_count": 2}),
        ("cur_shard", {"cur_shard": "x"}),
        ("cur_shard and shard_count", {"cur_shard": 0}),
        ("shard_count", {"cur_shard": 0, "shard_count": 0}),
        ("shard_count", {"cur_shard": Shard(0, 2), "shard_count": 2}),
        ("cache_location", {"cache_type": "local-disk", "cache_location": "s3://b"}),
        ("cache_size_limit", {"cache_type": "local-disk", "cache_size_limit": 1}),
    ],
)
def test_error_of_conflicting_reader_options_names_parameter_and_rule(
    url: str, parameter: str, options: dict[str, Any]
) -> None:
    for make in (petastore.make_reader, petastore.make_batch_reader):
        with pytest.raises(InvalidArgumentError) as caught:
            make(url, **options)
        assert form_of(str(caught.value), parameter)


@pytest.mark.parametrize("value", [5, "", ["a", 5], []])
def test_error_of_an_invalid_dataset_url_names_the_rule(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^dataset URLs? must "):
        petastore.make_reader(value)


@pytest.mark.parametrize(
    ("parameter", "options"),
    [
        ("weights", {"weights": [1]}),
        ("weights", {"weights": [1, -1]}),
        ("stop", {"stop": "x"}),
        ("batching", {"batching": "x"}),
        ("source_column", {"source_column": "id"}),
        ("source_column", {"source_column": 5}),
        ("seed", {"seed": "x"}),
        ("num_epochs", {"stop": "cycle", "num_epochs": 2}),
    ],
)
def test_error_of_make_mixed_reader_names_parameter_and_rule(url: str, parameter: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        petastore.make_mixed_reader([url, url], **{"weights": [1, 1], **options})
    assert form_of(str(caught.value), parameter)


WRITER: list[tuple[str, Any]] = [
    ("url", 5),
    ("schema", 5),
    ("rows", 5),
    ("mode", "x"),
    ("rows_per_row_group", 0),
    ("row_group_size_mb", 0),
    ("rows_per_file", 0),
    ("compression", "x"),
    ("filesystem", 5),
    ("workers_count", -1),
    ("indexers", 5),
]
"""Parameters of `write_dataset`, each with an invalid value."""


@pytest.mark.parametrize(("parameter", "value"), WRITER)
def test_error_of_write_dataset_names_parameter_and_rule(tmp_path: Path, parameter: str, value: Any) -> None:
    schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
    options = {"url": str(tmp_path / "out"), "schema": schema, "rows": [{"id": 1}], parameter: value}
    with pytest.raises(InvalidArgumentError) as caught:
        petastore.write_dataset(**options)
    assert form_of(str(caught.value), parameter)


FIELDS = {0: ["id"]}

VALUES: list[tuple[Any, str, tuple[Any, ...], dict[str, Any]]] = [
    (petastore.NGram, "fields", (5, 1, "id"), {}),
    (petastore.NGram, "fields", ({0: 5}, 1, "id"), {}),
    (petastore.NGram, "fields", ({"x": ["id"]}, 1, "id"), {}),
    (petastore.NGram, "delta_threshold", (FIELDS, "x", "id"), {}),
    (petastore.NGram, "delta_threshold", (FIELDS, -1, "id"), {}),
    (petastore.NGram, "timestamp_field", (FIELDS, 1, 5), {}),
    (petastore.NGram, "timestamp_overlap", (FIELDS, 1, "id"), {"timestamp_overlap": 5}),
    (petastore.NGram, "group_by", (FIELDS, 1, "id"), {"group_by": 5}),
    (petastore.TransformSpec, "func", (5,), {}),
    *(
        (petastore.TransformSpec, name, (dict,), {name: 5})
        for name in ("edit_fields", "removed_fields", "takes", "rng")
    ),
    (petastore.TransformSpec, "selected_fields", (dict,), {"selected_fields": "id"}),
    (petastore.TransformSpec, "edit_fields", (dict,), {"edit_fields": [5]}),
    (ScalarCodec, "spark_type", ("x",), {}),
    (ScalarCodec, "spark_type", (5,), {}),
    (CompressedImageCodec, "image_codec", ("bmp",), {}),
    (CompressedImageCodec, "quality", ("jpeg", 0), {}),
    (ArrowCodec, "arrow_type", (5,), {}),
    *((ImageDecode, name, (), {name: 5}) for name in ("size", "region", "mode", "exif_orientation")),
    (petastore.UnischemaField, "name", (5, "int8"), {}),
    (petastore.UnischemaField, "numpy_dtype", ("a", "nope"), {}),
    (petastore.UnischemaField, "shape", ("a", "int8", 5), {}),
    (petastore.UnischemaField, "codec", ("a", "int8", (), 5), {}),
    (in_set, "inclusion_values", (5, "id"), {}),
    (in_intersection, "inclusion_values", (5, "id"), {}),
    (in_lambda, "predicate_func", (["id"], 5), {}),
    (in_lambda, "predicate_fields", (5, bool), {}),
    (in_reduce, "predicate_list", ([], all), {}),
    (in_reduce, "reduce_func", ([in_set([1], "id")], 5), {}),
    (in_negate, "in_negate", (5,), {}),
    (in_pseudorandom_split, "fraction_list", ([2.0], 0, "id"), {}),
    (in_pseudorandom_split, "subset_index", ([0.5], 3, "id"), {}),
    (SingleIndexSelector, "index_name", (5, [1]), {}),
    (SingleIndexSelector, "values_list", ("by_id", 5), {}),
    (UnionIndexSelector, "single_index_selectors", ([],), {}),
    (SingleFieldIndexer, "index_name", (5, "id"), {}),
    (FieldNotNullIndexer, "index_field", ("by_id", 5), {}),
    (col, "name", (5,), {}),
]
"""A callable, the name of a parameter, and arguments with an invalid value for that parameter only."""


@pytest.mark.parametrize(("make", "parameter", "args", "options"), VALUES)
def test_error_of_constructors_names_parameter_and_rule(
    make: Any, parameter: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises((InvalidArgumentError, SchemaError)) as caught:
        make(*args, **options)
    assert form_of(str(caught.value), parameter)


TORCH: list[tuple[str, Any]] = [
    ("batch_size", 0),
    ("batch_size", "x"),
    ("collate_fn", 5),
    ("shuffling_queue_capacity", -1),
    ("ragged", "x"),
    ("ragged", {"id": "list"}),
    ("ragged", {"nope": "list"}),
    ("nulls", "x"),
    ("nulls", {"nope": 3}),
    ("device", "x"),
    ("num_workers", 2),
    ("shuffle", True),
    ("drop_last", True),
    ("sampler", [1]),
]
"""Parameters of torch's `DataLoader`, each with an invalid value."""


@pytest.mark.parametrize(("parameter", "value"), TORCH)
def test_error_of_torch_dataloader_names_parameter_and_rule(url: str, parameter: str, value: Any) -> None:
    torch = pytest.importorskip("petastore.adapters.torch")
    with petastore.make_reader(url) as reader, pytest.raises(InvalidArgumentError) as caught:
        torch.DataLoader(reader, **{"batch_size": 4, parameter: value})
    assert form_of(str(caught.value), parameter)


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        ("ReaderDataset", "batch_size", 0),
        ("ReaderDataset", "ragged", "x"),
        ("ReaderDataset", "nulls", "x"),
        ("ReaderDataset", "num_epochs", 0),
        ("MapDataset", "cache_bytes", "x"),
        ("MapDataset", "selection", 5),
        ("MapDataset", "nulls", "x"),
    ],
)
def test_error_of_torch_datasets_names_parameter_and_rule(url: str, name: str, parameter: str, value: Any) -> None:
    torch = pytest.importorskip("petastore.adapters.torch")
    with pytest.raises(InvalidArgumentError) as caught:
        getattr(torch, name)(url, **{**({"batch_size": 4} if name == "ReaderDataset" else {}), parameter: value})
    assert form_of(str(caught.value), parameter)


@pytest.mark.parametrize(("parameter", "value"), [("batch_size", 0), ("ragged", "x"), ("nulls", "x")])
def test_tensorflow_keras_and_jax_loader_errors_name_parameter_and_rule(url: str, parameter: str, value: Any) -> None:
    makes = []
    for module, name in (("tensorflow", "make_tf_dataset"), ("keras", "PyDataset"), ("jax", "DataLoader")):
        try:
            makes.append(getattr(__import__(f"petastore.adapters.{module}", fromlist=[name]), name))
        except ImportError:
            continue
    for make in makes:
        with petastore.make_reader(url) as reader, pytest.raises(InvalidArgumentError) as caught:
            make(reader, **{"batch_size": 4, parameter: value})
        assert form_of(str(caught.value), parameter), str(caught.value)


def test_error_of_make_spark_converter_names_parameter_and_rule() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidArgumentError) as caught:
        make_spark_converter(wrong)
    assert form_of(str(caught.value), "df")


@pytest.mark.parametrize(("parameter", "value"), [("schema", 5), ("spark", 5)])
def test_error_of_materialize_dataset_names_parameter_and_rule(tmp_path: Path, parameter: str, value: Any) -> None:
    pytest.importorskip("pyspark")
    options = {"spark": 5, "dataset_url": str(tmp_path / "out"), "schema": SCHEMA, parameter: value}
    with pytest.raises(InvalidArgumentError) as caught, materialize_dataset(**options):
        pass
    assert form_of(str(caught.value), parameter)
