"""Tests of retired parameters: accepted, checked, and one warning per process at the caller's line."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import petastore
from petastore.errors import InvalidArgumentError, RetiredWarning
from petastore.selecting.retired import Retired, tell_retired, warned_of

READERS = [petastore.make_reader, petastore.make_batch_reader]
ASKING = {
    "results_queue_size": 50,
    "shuffle_row_drop_partitions": 2,
    "shard_seed": 0,
    "hdfs_driver": "libhdfs3",
    "zmq_copy_buffers": False,
    "convert_early_to_numpy": True,
}
# Petastorm's order of parameters, from its documentation.
ORDER = (
    "schema_fields reader_pool_type workers_count pyarrow_serialize results_queue_size seed shuffle_rows "
    "shuffle_row_groups shuffle_row_drop_partitions predicate rowgroup_selector num_epochs cur_shard shard_count "
    "shard_seed cache_type cache_location cache_size_limit cache_row_size_estimate cache_extra_settings hdfs_driver "
    "transform_spec filters storage_options zmq_copy_buffers filesystem convert_early_to_numpy"
)


@pytest.fixture(autouse=True)
def _nothing_was_told_yet() -> Iterator[None]:
    warned_of.clear()
    yield
    warned_of.clear()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = str(tmp_path_factory.mktemp("retired") / "ids")
    schema = petastore.Unischema("ids", [petastore.UnischemaField("id", "int64")])
    petastore.write_dataset(url, schema, [{"id": number} for number in range(10)], rows_per_row_group=3)
    return url


@pytest.mark.parametrize("make", READERS)
def test_parameters_keep_petastorms_order(make: Callable[..., Any]) -> None:
    parameters = list(inspect.signature(make).parameters.values())[1:]
    positional = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    not_here = set() if make is petastore.make_reader else {"pyarrow_serialize"}
    assert positional == [name for name in ORDER.split() if name not in not_here]


@pytest.mark.parametrize("make", READERS)
@pytest.mark.parametrize(("name", "value"), ASKING.items())
def test_retired_parameter_warns_once(make: Callable[..., Any], name: str, value: Any, url: str) -> None:
    with pytest.warns(RetiredWarning, match=f"^{name}=") as told, make(url, **{name: value}) as reader:
        assert reader.num_rows == 10
    assert [warning.filename for warning in told] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(url, **{name: value}).stop()


def test_parameters_of_horovod_are_accepted(url: str) -> None:
    asked = {"hdfs_driver": "libhdfs", "pyarrow_serialize": True, "seed": 0, "storage_options": None}
    with pytest.warns(RetiredWarning, match="^pyarrow_serialize=") as told:
        petastore.make_reader(url, cur_shard=0, shard_count=2, **asked).stop()  # type: ignore[arg-type]
    assert len(told) == 1


def test_retired_parameters_with_default_like_values_give_no_warning(url: str) -> None:
    asked: dict[str, Any] = {
        "cache_type": None,
        "cache_row_size_estimate": 100,
        "shuffle_row_drop_partitions": 1,
        "zmq_copy_buffers": True,
    }
    asked |= {"cache_location": Path("/tmp/none"), "cache_size_limit": 10**9, "pyarrow_serialize": False}  # noqa: S108
    with petastore.make_reader(url, **asked) as reader:
        assert len(list(reader)) == 10


def test_retired_parameters_do_not_change_the_rows_of_a_shard(url: str) -> None:
    def ids(**asked: Any) -> list[int]:
        with petastore.make_reader(url, shuffle_rows=True, cur_shard=0, shard_count=2, seed=7, **asked) as reader:
            return [int(row.id) for row in reader]

    with pytest.warns(RetiredWarning):
        assert ids(shard_seed=3, shuffle_row_drop_partitions=3, cache_type="local-disk") == ids()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache_type", "memory"),
        ("hdfs_driver", "webhdfs"),
        ("results_queue_size", 0),
        ("shuffle_row_drop_partitions", "2"),
    ],
)
def test_invalid_value_of_a_retired_parameter_raises(name: str, value: Any, url: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{name} must be .*, got {value!r}$"):
        petastore.make_reader(url, **{name: value})


def test_retired_parameter_warning_as_an_error_is_raised_each_time() -> None:
    for _ in range(2):
        with pytest.raises(RetiredWarning):
            tell_retired(Retired(shard_seed=1))
