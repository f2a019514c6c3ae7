"""Tests of `make_tf_dataset_fn` for `tf.distribute`: two workers read each row once; auto-sharding loses rows."""

from __future__ import annotations

import collections
import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.errors import InvalidArgumentError
from tests.adapters.tensorflow.two_workers import run_two_workers
from tests.warm_interpreters import WarmInterpreter

pytestmark = [pytest.mark.tf, pytest.mark.slow]

ROWS = 101

CONTROL = """
import tensorflow as tf
from petastore import make_reader
from petastore.adapters.tensorflow import make_tf_dataset

strategy = tf.distribute.MultiWorkerMirroredStrategy()
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
trained = []
with make_reader("lines", ["id"], cur_shard=strategy.cluster_resolver.task_id, shard_count=2, num_epochs=2) as reader:
    dataset = make_tf_dataset(reader, batch_size=16).with_options(options)
    for batch in strategy.experimental_distribute_dataset(dataset):
        trained += strategy.experimental_local_results(batch["id"])[0].numpy().tolist()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the dataset `lines`, which the how-to page writes."""
    where = tmp_path_factory.mktemp("workers")
    fields = [petastore.UnischemaField("id", "int64"), petastore.UnischemaField("x", "float32")]
    lines = [{"id": i, "x": i / 100} for i in range(ROWS)]
    petastore.write_dataset(str(where / "lines"), petastore.Unischema("Lines", fields), lines, rows_per_row_group=13)
    return where


def trained_by_two_workers(interpreter: WarmInterpreter, program: str, folder: Path) -> list[Any]:
    """Run a program in two workers, and return the list `trained` of each."""
    program = f"{program}\nimport json\nprint(json.dumps(trained))"
    return [json.loads(printed) for printed in run_two_workers(interpreter, program, cwd=folder)]


def test_documented_multi_worker_program_trains_on_each_row_once(
    repository: Path, folder: Path, warm_tensorflow: WarmInterpreter
) -> None:
    page = (repository / "docs/how-to/train-with-several-tensorflow-workers.md").read_text(encoding="utf-8")
    _, program, restored = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    both = "trained = [trained, [int(i) for ids in rest for i in ids]]"
    workers = trained_by_two_workers(warm_tensorflow, f"{program}\n{restored}\n{both}", folder)
    counts = collections.Counter(i for trained, _ in workers for i in trained)
    assert counts == dict.fromkeys(range(ROWS), 2)
    for trained, rest in workers:
        assert trained[-len(rest) :] == rest  # the batches of the second epoch after the last checkpoint
        assert 0 < len(rest) < ROWS / 4


def test_auto_sharding_of_a_sharded_dataset_loses_half_of_the_rows(
    folder: Path, warm_tensorflow: WarmInterpreter
) -> None:
    """Negative control: the same program with auto-sharding on."""
    first, second = trained_by_two_workers(warm_tensorflow, CONTROL, folder)
    assert len(first + second) < 2 * ROWS * 0.6


def test_default_strategy_reads_all_rows_on_one_worker(folder: Path) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset_fn

    open_reader = functools.partial(petastore.make_reader, str(folder / "lines"), shuffle_row_groups=False)
    with make_tf_dataset_fn(open_reader, 20, map_func=lambda batch: batch["id"]) as dataset_fn:
        with pytest.raises(InvalidArgumentError, match="got 0 calls"):
            _ = dataset_fn.reader
        batches = tf.distribute.get_strategy().distribute_datasets_from_function(dataset_fn)
        assert [i for batch in batches for i in batch.numpy().tolist()] == list(range(ROWS))
        assert dataset_fn.steps_per_epoch == 6
        reader = dataset_fn.reader
    assert reader.stopped


def test_each_replica_of_a_worker_gets_its_own_batch(folder: Path) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset_fn

    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=8)
    with make_tf_dataset_fn(functools.partial(petastore.make_reader, str(folder / "lines")), 16) as dataset_fn:
        dataset = dataset_fn(context)
        assert [len(batch["id"]) for batch in dataset][:3] == [2, 2, 2]
        assert int(dataset.cardinality()) == 25  # the one remaining row is added to the batch before it
        assert dataset_fn.steps_per_epoch == 7
        assert dataset.options().experimental_distribute.auto_shard_policy == tf.data.experimental.AutoShardPolicy.OFF


def test_invalid_global_batch_size_or_shard_raises(folder: Path) -> None:
    import tensorflow as tf

    from petastore.adapters.tensorflow import make_tf_dataset_fn

    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1, num_replicas_in_sync=2)

    def forgets(**_: Any) -> Any:
        return petastore.make_reader(str(folder / "lines"))

    with make_tf_dataset_fn(forgets, 16) as dataset_fn, pytest.raises(InvalidArgumentError, match="pass cur_shard and"):
        dataset_fn(context)
    with (
        make_tf_dataset_fn(forgets, 15) as dataset_fn,
        pytest.raises(InvalidArgumentError, match="global_batch_size must be a multiple of the 2 replicas, got 15"),
    ):
        dataset_fn(context)
    with pytest.raises(InvalidArgumentError, match="global_batch_size"):
        make_tf_dataset_fn(forgets, 0)
