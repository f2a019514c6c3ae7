"""Petastorm's modules and names, and what stands for each of them here: one table.

A name is either *at home* somewhere in petastore, written `"module:name"`, or there is an `Instead`: why it is not, and
what does its job. `petastore.interop.petastorm_modules` makes modules of the table.
"""

from __future__ import annotations

import dataclasses
from typing import Final, TypeAlias

__all__ = ["NAMES", "Entry", "Instead"]


@dataclasses.dataclass(frozen=True, slots=True)
class Instead:
    """There is no such name here: this does its job."""

    advice: str
    """Half a sentence: why, or what to use instead."""


Entry: TypeAlias = str | Instead

_POOLS = Instead("pools belong to readers; give make_reader reader_pool_type= and workers_count=")
_NOTHING_CROSSES = Instead("nothing is serialised on the way: readers work in threads, and processes share memory")
_BUFFERS = Instead("readers shuffle by themselves: make_reader(shuffle_rows=True, shuffle_buffer_bytes=…)")
_CACHES = Instead('caches belong to readers; give make_reader cache_type="local-disk" and cache_location=')
_HDFS = Instead("pyarrow's own HDFS filesystem finds and follows the name nodes; give make_reader the hdfs:// URL")
_URLS = Instead("make_reader and open_dataset take URLs, paths and lists of them as they are")
_FOOTERS = Instead("petastore.open_dataset(url).inventory says which files and row groups there are")
_PRIVATE = Instead("it was private to Petastorm, and nothing here is like it")
_UNSAFE = Instead(
    "pickled metadata is read as data here, by petastore.storage.petastorm.petastorm_schema; nothing is unpickled"
)
_MOCKS = Instead("write a few rows with petastore.write_dataset to a temporary folder, and read them")

_WORKERS = Instead(
    "workers belong to readers: make_reader and make_batch_reader take what is read, and a transform_spec"
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
        "main": Instead("the command line is petastore's: `petastore throughput URL`, or petastore.cli.main.main"),
    },
    "benchmark.throughput": {
        "reader_throughput": "petastore.cli.throughput:reader_throughput",
        "BenchmarkResult": Instead(
            "reader_throughput gives a petastore.cli.throughput.Throughput, which has time_mean, samples_per_second, "
            "memory_info.rss and cpu"
        ),
        "ReadMethod": "petastore.interop.petastorm_benchmark:ReadMethod",
        "WorkerPoolType": "petastore.interop.petastorm_benchmark:WorkerPoolType",
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
        "UNISCHEMA_KEY": Instead("petastore.open_dataset(url).schema is the schema, whoever wrote it"),
        "ROW_GROUPS_PER_FILE_KEY": _FOOTERS,
    },
    "etl.legacy": {
        "RestrictedUnpickler": _UNSAFE,
        "restricted_loads": _UNSAFE,
        "depickle_legacy_package_name_compatible": _UNSAFE,
    },
    "etl.metadata_util": {},
    "etl.petastorm_generate_metadata": {
        "generate_petastorm_metadata": "petastore.spark.writing.generate:generate_petastorm_metadata",
        "main": Instead("the command is `petastore generate-metadata URL`"),
    },
    "etl.rowgroup_indexers": {
        "SingleFieldIndexer": "petastore.indexers:SingleFieldIndexer",
        "FieldNotNullIndexer": "petastore.indexers:FieldNotNullIndexer",
    },
    "etl.rowgroup_indexing": {
        "build_rowgroup_index": "petastore.indexing:build_rowgroup_index",
        "get_row_group_indexes": "petastore.indexing:get_row_group_indexes",
        "ROWGROUPS_INDEX_KEY": Instead("indexes are read through get_row_group_indexes"),
    },
    "fs_utils": {
        "FilesystemResolver": "petastore.interop.petastorm_filesystems:FilesystemResolver",
        "get_filesystem_and_path_or_paths": "petastore.interop.petastorm_filesystems:get_filesystem_and_path_or_paths",
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
        "LoaderBase": Instead(
            "petastore.adapters.torch.DataLoader is a torch.utils.data.DataLoader, for code that asks"
        ),
        "_sanitize_pytorch_types": _PRIVATE,
    },
    "reader": {
        "Reader": "petastore.readers.reader:Reader",
        "make_reader": "petastore.front:make_reader",
        "make_batch_reader": "petastore.front:make_batch_reader",
        "LOCAL_DISK_CACHE": "petastore.readers.asked:LOCAL_DISK_CACHE",
        "NULL_CACHE": "petastore.readers.asked:NULL_CACHE",
        "normalize_dataset_url_or_urls": _URLS,
        "_VENTILATE_EXTRA_ROWGROUPS": Instead("make_reader(memory_budget=…) says how much is read ahead"),
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
        "dataset_as_rdd": "petastore.spark.rdd:dataset_as_rdd",
    },
    "test_util": {},
    "test_util.reader_mock": {
        "ReaderMock": _MOCKS,
        "schema_data_generator_example": "petastore.interop.petastorm_calls:generate_datapoint",
    },
    "test_util.shuffling_analysis": {
        "compute_correlation_distribution": Instead("reader.plan.explain() says how well an order mixes"),
        "generate_shuffle_analysis_dataset": Instead("reader.plan.explain() says how well an order mixes"),
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
        "add_configure_spark_arguments": "petastore.interop.petastorm_spark_session:add_configure_spark_arguments",
        "configure_spark": "petastore.interop.petastorm_spark_session:configure_spark",
    },
    "transform": {
        "TransformSpec": "petastore.transforming.transform:TransformSpec",
        "edit_field": "petastore.transforming.transform:edit_field",
        "transform_schema": "petastore.transforming.transform:transform_schema",
    },
    "unischema": {
        "Unischema": "petastore.schema.unischema:Unischema",
        "UnischemaField": "petastore.schema.field:UnischemaField",
        "dict_to_spark_row": "petastore.spark.rows:dict_to_spark_row",
        "insert_explicit_nulls": "petastore.spark.rows:insert_explicit_nulls",
        "match_unischema_fields": "petastore.schema.select:match_unischema_fields",
        "_UNISCHEMA_FIELD_ORDER": Instead("fields are always in the order in which they are given"),
        "_numpy_and_codec_from_arrow_type": _PRIVATE,
        "_numpy_to_spark_mapping": _PRIVATE,
    },
    "utils": {
        "DecodeFieldError": "petastore.errors:DecodeError",
        "decode_row": "petastore.interop.petastorm_calls:decode_row",
        "add_to_dataset_metadata": Instead("metadata of your own belongs into a file of your own beside the dataset"),
        "run_in_subprocess": Instead("concurrent.futures.ProcessPoolExecutor(1).submit(func, …).result() does it"),
    },
    "weighted_sampling_reader": {
        "WeightedSamplingReader": "petastore.readers.mixed.weighted_sampling:WeightedSamplingReader",
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
"""Module, without its first word → name → its home, or what to use instead."""
