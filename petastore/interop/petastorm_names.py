"""Table of Petastorm's modules and names with their petastore equivalents.

The table maps a name to an object of petastore, written `"module:name"`. If petastore does not have the name, the value
is an `Instead` with the reason or the replacement. `petastore.interop.petastorm` builds modules from the
table.
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias

__all__ = ["NAMES", "Entry", "Instead"]


@dataclasses.dataclass(frozen=True, slots=True)
class Instead:
    """Advice for a name of Petastorm that petastore does not have."""

    advice: str
    """Text for the error message: the reason, or the replacement."""


Entry: TypeAlias = str | Instead

_POOLS = Instead("each reader has its own pool; pass reader_pool_type= and workers_count= to make_reader")
_NOTHING_CROSSES = Instead("nothing is serialized: readers use threads, and processes use shared memory")
_BUFFERS = Instead("readers shuffle; use make_reader(shuffle_rows=True, shuffle_buffer_bytes=…)")
_CACHES = Instead('each reader has its own cache; pass cache_type="local-disk" and cache_location= to make_reader')
_HDFS = Instead("pyarrow's HDFS filesystem resolves name nodes; pass the hdfs:// URL to make_reader")
_URLS = Instead("make_reader and open_dataset accept URLs, paths and lists of them")
_FOOTERS = Instead("petastore.open_dataset(url).inventory lists the files and row groups")
_PRIVATE = Instead("it was private to Petastorm, and has no equivalent")
_UNSAFE = Instead(
    "pickled metadata is parsed as data by petastore.storage.metadata.petastorm_schema, and never unpickled"
)
_MOCKS = Instead("write a few rows with petastore.write_dataset to a temporary folder, and read them")

_WORKERS = Instead(
    "each reader has its own workers; pass columns and a transform_spec to make_reader or make_batch_reader"
)

NAMES: Final[dict[str, dict[str, Entry]]] = {
    "": {
        "make_reader": "petastore.front:make_reader",
        "make_batch_reader": "petastore.front:make_batch_reader",
        "NoDataAvailableError": "petastore.errors:NoDataAvailableError",
        "TransformSpec": "petastore.transforming.transform:TransformSpec",
    },
    "arrow_reader_worker": {
        "ArrowReaderWorker": _WORKERS,
        "ArrowReaderWorkerResultsQueueReader": _WORKERS,
    },
    "benchmark": {},
    "benchmark.cli": {
        "main": Instead("the command line is petastore's: `petastore throughput URL`, or petastore.cli.__main__.main"),
    },
    "benchmark.throughput": {
        "reader_throughput": "petastore.tuning:reader_throughput",
        "BenchmarkResult": Instead(
            "reader_throughput gives a petastore.tuning.Throughput, which has time_mean, samples_per_second, "
            "memory_info.rss and cpu"
        ),
        "ReadMethod": "petastore.interop.petastorm_calls:ReadMethod",
        "WorkerPoolType": "petastore.interop.petastorm_calls:WorkerPoolType",
    },
    "benchmark.dummy_reader": {
        "DummyReader": _MOCKS,
    },
    "cache": {
        "CacheBase": _CACHES,
        "NullCache": _CACHES,
    },
    "codecs": {
        "CompressedImageCodec": "petastore.codecs:CompressedImageCodec",
        "CompressedNdarrayCodec": "petastore.codecs:CompressedNdarrayCodec",
        "NdarrayCodec": "petastore.codecs:NdarrayCodec",
        "ScalarCodec": "petastore.codecs:ScalarCodec",
        "DataframeColumnCodec": "petastore.codecs:DataframeColumnCodec",
        "_is_compliant_shape": _PRIVATE,
    },
    "errors": {
        "NoDataAvailableError": "petastore.errors:NoDataAvailableError",
    },
    "etl": {
        "RowGroupIndexerBase": "petastore.indexers:RowGroupIndexerBase",
    },
    "etl.dataset_metadata": {
        "PetastormMetadataError": "petastore.errors:MetadataError",
        "PetastormMetadataGenerationError": "petastore.errors:MetadataError",
        "materialize_dataset": "petastore.spark.writing.materialize:materialize_dataset",
        "get_schema": "petastore.interop.petastorm_calls:get_schema",
        "get_schema_from_dataset_url": "petastore.interop.petastorm_calls:get_schema_from_dataset_url",
        "infer_or_load_unischema": "petastore.interop.petastorm_calls:get_schema",
        "load_row_groups": _FOOTERS,
        "UNISCHEMA_KEY": Instead("petastore.open_dataset(url).schema has the schema of every dataset"),
        "ROW_GROUPS_PER_FILE_KEY": _FOOTERS,
    },
    "etl.legacy": {
        "RestrictedUnpickler": _UNSAFE,
        "restricted_loads": _UNSAFE,
        "depickle_legacy_package_name_compatible": _UNSAFE,
    },
    "etl.metadata_util": {},
    "etl.petastorm_generate_metadata": {
        "generate_petastorm_metadata": "petastore.spark.writing.materialize:generate_petastorm_metadata",
        "main": Instead("the command is `petastore generate-metadata URL`"),
    },
    "etl.rowgroup_indexers": {
        "SingleFieldIndexer": "petastore.indexers:SingleFieldIndexer",
        "FieldNotNullIndexer": "petastore.indexers:FieldNotNullIndexer",
    },
    "etl.rowgroup_indexing": {
        "build_rowgroup_index": "petastore.indexing:build_rowgroup_index",
        "get_row_group_indexes": "petastore.indexing:get_row_group_indexes",
        "ROWGROUPS_INDEX_KEY": Instead("use get_row_group_indexes to read indexes"),
    },
    "fs_utils": {
        "FilesystemResolver": "petastore.interop.petastorm_calls:FilesystemResolver",
        "get_filesystem_and_path_or_paths": "petastore.interop.petastorm_calls:get_filesystem_and_path_or_paths",
        "normalize_dir_url": _URLS,
        "get_dataset_path": _URLS,
    },
    "generator": {
        "generate_datapoint": "petastore.interop.petastorm_calls:generate_datapoint",
    },
    "hdfs": {},
    "hdfs.namenode": {
        "HAHdfsClient": _HDFS,
        "HdfsConnectError": _HDFS,
        "HdfsConnector": _HDFS,
        "HdfsNamenodeResolver": _HDFS,
        "MaxFailoversExceeded": _HDFS,
    },
    "local_disk_cache": {
        "LocalDiskCache": _CACHES,
    },
    "ngram": {
        "NGram": "petastore.plan.windows.ngram:NGram",
    },
    "predicates": {
        "PredicateBase": "petastore.predicates:PredicateBase",
        "in_intersection": "petastore.predicates:in_intersection",
        "in_lambda": "petastore.predicates:in_lambda",
        "in_negate": "petastore.predicates:in_negate",
        "in_pseudorandom_split": "petastore.predicates:in_pseudorandom_split",
        "in_reduce": "petastore.predicates:in_reduce",
        "in_set": "petastore.predicates:in_set",
    },
    "py_dict_reader_worker": {
        "PyDictReaderWorker": _WORKERS,
        "PyDictReaderWorkerResultsQueueReader": _WORKERS,
    },
    "pyarrow_helpers": {},
    "pyarrow_helpers.batching_table_queue": {
        "BatchingTableQueue": Instead("reader.iter_batches(n) gives batches of n rows"),
    },
    "pytorch": {
        "DataLoader": "petastore.adapters.torch:DataLoader",
        "decimal_friendly_collate": "petastore.adapters.torch:decimal_friendly_collate",
        "BatchedDataLoader": "petastore.adapters.torch:BatchedDataLoader",
        "InMemBatchedDataLoader": "petastore.adapters.torch:InMemBatchedDataLoader",
        "LoaderBase": Instead("petastore.adapters.torch.DataLoader is a torch.utils.data.DataLoader"),
        "_sanitize_pytorch_types": _PRIVATE,
    },
    "reader": {
        "Reader": "petastore.readers.reader:Reader",
        "make_reader": "petastore.front:make_reader",
        "make_batch_reader": "petastore.front:make_batch_reader",
        "LOCAL_DISK_CACHE": "petastore.readers.options:LOCAL_DISK_CACHE",
        "NULL_CACHE": "petastore.readers.options:NULL_CACHE",
        "normalize_dataset_url_or_urls": _URLS,
        "_VENTILATE_EXTRA_ROWGROUPS": Instead("make_reader(memory_budget=…) limits prefetching"),
    },
    "reader_impl": {},
    "reader_impl.arrow_table_serializer": {
        "ArrowTableSerializer": _NOTHING_CROSSES,
    },
    "reader_impl.pickle_serializer": {
        "PickleSerializer": _NOTHING_CROSSES,
    },
    "reader_impl.pytorch_shuffling_buffer": {
        "BatchedNoopShufflingBuffer": _BUFFERS,
        "BatchedRandomShufflingBuffer": _BUFFERS,
    },
    "reader_impl.shuffling_buffer": {
        "NoopShufflingBuffer": _BUFFERS,
        "RandomShufflingBuffer": _BUFFERS,
    },
    "selectors": {
        "IntersectIndexSelector": "petastore.selectors:IntersectIndexSelector",
        "RowGroupSelectorBase": "petastore.selectors:RowGroupSelectorBase",
        "SingleIndexSelector": "petastore.selectors:SingleIndexSelector",
        "UnionIndexSelector": "petastore.selectors:UnionIndexSelector",
    },
    "spark": {
        "SparkDatasetConverter": "petastore.spark.caching.converter:SparkDatasetConverter",
        "make_spark_converter": "petastore.spark.caching.converter:make_spark_converter",
    },
    "spark.spark_dataset_converter": {
        "SparkDatasetConverter": "petastore.spark.caching.converter:SparkDatasetConverter",
        "make_spark_converter": "petastore.spark.caching.converter:make_spark_converter",
        "register_delete_dir_handler": "petastore.spark.caching.converter_cache:register_delete_dir_handler",
    },
    "spark_utils": {
        "dataset_as_rdd": "petastore.spark.decoded:dataset_as_rdd",
    },
    "test_util": {},
    "test_util.reader_mock": {
        "ReaderMock": _MOCKS,
        "schema_data_generator_example": "petastore.interop.petastorm_calls:generate_datapoint",
    },
    "test_util.shuffling_analysis": {
        "compute_correlation_distribution": Instead("reader.plan.explain() predicts how well rows are mixed"),
        "generate_shuffle_analysis_dataset": Instead("reader.plan.explain() predicts how well rows are mixed"),
    },
    "tf_utils": {
        "make_petastorm_dataset": "petastore.interop.petastorm_calls:make_petastorm_dataset",
        "tf_tensors": "petastore.interop.petastorm_calls:tf_tensors",
        "RANDOM_SHUFFLING_QUEUE_SIZE": _BUFFERS,
    },
    "tools": {},
    "tools.copy_dataset": {
        "copy_dataset": "petastore.spark.writing.copy:copy_dataset",
        "main": Instead("the command is `petastore copy SOURCE TARGET`"),
    },
    "tools.spark_session_cli": {
        "add_configure_spark_arguments": "petastore.interop.petastorm_calls:add_configure_spark_arguments",
        "configure_spark": "petastore.interop.petastorm_calls:configure_spark",
    },
    "transform": {
        "TransformSpec": "petastore.transforming.transform:TransformSpec",
        "edit_field": "petastore.transforming.transform:edit_field",
        "transform_schema": "petastore.transforming.transform:transform_schema",
    },
    "unischema": {
        "Unischema": "petastore.schema.unischema:Unischema",
        "UnischemaField": "petastore.schema.field:UnischemaField",
        "dict_to_spark_row": "petastore.spark.dataframe:dict_to_spark_row",
        "insert_explicit_nulls": "petastore.spark.dataframe:insert_explicit_nulls",
        "match_unischema_fields": "petastore.schema.select:match_unischema_fields",
        "_UNISCHEMA_FIELD_ORDER": Instead("fields always keep the order in which they are passed"),
        "_numpy_and_codec_from_arrow_type": _PRIVATE,
        "_numpy_to_spark_mapping": _PRIVATE,
    },
    "utils": {
        "DecodeFieldError": "petastore.errors:DecodeError",
        "decode_row": "petastore.interop.petastorm_calls:decode_row",
        "add_to_dataset_metadata": Instead("store your own metadata in a separate file"),
        "run_in_subprocess": Instead("concurrent.futures.ProcessPoolExecutor(1).submit(func, …).result() does it"),
    },
    "weighted_sampling_reader": {
        "WeightedSamplingReader": "petastore.readers.mixed_sources:WeightedSamplingReader",
    },
    "workers_pool": {
        "EmptyResultError": _POOLS,
        "TimeoutWaitingForResultError": _POOLS,
        "VentilatedItemProcessedMessage": _POOLS,
    },
    "workers_pool.dummy_pool": {"DummyPool": _POOLS},
    "workers_pool.process_pool": {"ProcessPool": _POOLS},
    "workers_pool.thread_pool": {"ThreadPool": _POOLS},
    "workers_pool.ventilator": {"ConcurrentVentilator": _POOLS},
    "workers_pool.worker_base": {"WorkerBase": _POOLS},
}
"""Dict from module name (without the root package) to a dict of the names in the module.

The value of each name is the object in petastore as `module:name`, or an `Instead` with the replacement.
"""
