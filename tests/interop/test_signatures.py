"""Tests of signatures: functions that exist in Petastorm have its parameters, in its order."""

from __future__ import annotations

import importlib
import inspect

import pytest

from petastore.interop.petastorm_names import NAMES

# Parameters of Petastorm 0.13.1 from its documentation; tests/selecting/test_retired.py has those of the readers.
SIGNATURES = {
    ("benchmark.throughput", "reader_throughput"): "dataset_url field_regex warmup_cycles_count measure_cycles_count "
    "pool_type loaders_count profile_threads read_method shuffling_queue_size min_after_dequeue reader_extra_args "
    "spawn_new_process",
    ("codecs", "CompressedImageCodec"): "image_codec quality",
    ("codecs", "ScalarCodec"): "spark_type",
    ("etl.dataset_metadata", "get_schema"): "dataset",
    (
        "etl.dataset_metadata",
        "get_schema_from_dataset_url",
    ): "dataset_url_or_urls hdfs_driver storage_options filesystem",
    ("etl.dataset_metadata", "materialize_dataset"): "spark dataset_url schema row_group_size_mb use_summary_metadata "
    "filesystem_factory",
    ("etl.petastorm_generate_metadata", "generate_petastorm_metadata"): "spark dataset_url unischema_class "
    "use_summary_metadata hdfs_driver",
    ("etl.rowgroup_indexers", "FieldNotNullIndexer"): "index_name index_field",
    ("etl.rowgroup_indexers", "SingleFieldIndexer"): "index_name index_field",
    ("etl.rowgroup_indexing", "build_rowgroup_index"): "dataset_url spark_context indexers hdfs_driver",
    ("etl.rowgroup_indexing", "get_row_group_indexes"): "dataset",
    ("fs_utils", "FilesystemResolver"): "dataset_url hadoop_configuration connector hdfs_driver user storage_options",
    ("fs_utils", "get_filesystem_and_path_or_paths"): "url_or_urls hdfs_driver storage_options filesystem",
    ("generator", "generate_datapoint"): "schema",
    ("ngram", "NGram"): "fields delta_threshold timestamp_field timestamp_overlap",
    ("predicates", "in_intersection"): "inclusion_values predicate_field",
    ("predicates", "in_lambda"): "predicate_fields predicate_func state_arg",
    ("predicates", "in_negate"): "predicate",
    ("predicates", "in_pseudorandom_split"): "fraction_list subset_index predicate_field",
    ("predicates", "in_reduce"): "predicate_list reduce_func",
    ("predicates", "in_set"): "inclusion_values predicate_field",
    ("pytorch", "BatchedDataLoader"): "reader batch_size transform_fn shuffling_queue_capacity",
    ("pytorch", "DataLoader"): "reader batch_size collate_fn shuffling_queue_capacity",
    ("pytorch", "InMemBatchedDataLoader"): "reader batch_size transform_fn num_epochs seed rows_capacity shuffle",
    ("pytorch", "decimal_friendly_collate"): "batch",
    ("selectors", "IntersectIndexSelector"): "single_index_selectors",
    ("selectors", "SingleIndexSelector"): "index_name values_list",
    ("selectors", "UnionIndexSelector"): "single_index_selectors",
    ("spark", "make_spark_converter"): "df parquet_row_group_size_bytes compression_codec dtype",
    ("spark", "SparkDatasetConverter"): "cache_dir_url file_urls dataset_size",
    ("spark_utils", "dataset_as_rdd"): "dataset_url spark_session schema_fields hdfs_driver",
    ("tf_utils", "make_petastorm_dataset"): "reader",
    ("tf_utils", "tf_tensors"): "reader shuffling_queue_capacity min_after_dequeue",
    ("tools.copy_dataset", "copy_dataset"): "spark source_url target_url field_regex not_null_fields overwrite_output "
    "partitions_count row_group_size_mb hdfs_driver",
    ("tools.spark_session_cli", "configure_spark"): "spark_session_builder args",
    ("tools.spark_session_cli", "add_configure_spark_arguments"): "argparser",
    ("transform", "TransformSpec"): "func edit_fields removed_fields selected_fields",
    ("transform", "edit_field"): "name numpy_dtype shape nullable",
    ("transform", "transform_schema"): "schema transform_spec",
    ("unischema", "Unischema"): "name fields",
    ("unischema", "UnischemaField"): "name numpy_dtype shape codec nullable",
    ("unischema", "dict_to_spark_row"): "unischema row_dict",
    ("unischema", "insert_explicit_nulls"): "unischema row_dict",
    ("unischema", "match_unischema_fields"): "schema field_regex",
    ("utils", "decode_row"): "row schema",
    ("weighted_sampling_reader", "WeightedSamplingReader"): "readers probabilities",
}


def test_parameters_have_petastorms_names_in_its_order(subtests: pytest.Subtests) -> None:
    for (inside, name), expected in SIGNATURES.items():
        if inside != "tf_utils":
            with subtests.test(f"{inside}.{name}"):
                check_signature(inside, name, expected.split())


@pytest.mark.slow
@pytest.mark.tf
def test_parameters_of_tf_utils_have_petastorms_names_in_its_order(subtests: pytest.Subtests) -> None:
    for (inside, name), expected in SIGNATURES.items():
        if inside == "tf_utils":
            with subtests.test(f"{inside}.{name}"):
                check_signature(inside, name, expected.split())


def check_signature(inside: str, name: str, expected: list[str]) -> None:
    home, _, attribute = str(NAMES[inside][name]).partition(":")
    ours = getattr(importlib.import_module(home), attribute)
    parameters = inspect.signature(ours).parameters
    assert list(parameters)[: len(expected)] == expected
    assert all(parameters[known].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for known in expected)
    further = list(parameters.values())[len(expected) :]
    kinds = {inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD}
    assert all(parameter.kind in kinds or parameter.default is not inspect.Parameter.empty for parameter in further)


def test_signature_tests_cover_each_petastorm_callable_with_parameters() -> None:
    """Errors, abstract classes, readers and codecs without parameters need no entry."""
    others = {
        "make_reader",
        "make_batch_reader",
        "Reader",
        "NdarrayCodec",
        "CompressedNdarrayCodec",
        "DataframeColumnCodec",
    }
    others |= {"ReadMethod", "WorkerPoolType"}
    others |= {"infer_or_load_unischema", "schema_data_generator_example", "register_delete_dir_handler"}
    checked = {name for _, name in SIGNATURES}
    callables = {name for names in NAMES.values() for name, entry in names.items() if isinstance(entry, str)}
    left = {
        name for name in callables - checked - others if not name.endswith(("Error", "Base")) and not name.isupper()
    }
    assert left == set()
