"""Tests of ranks from launchers' environment variables, and of errors that name an invalid variable."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

import petastore
from petastore.distributed import from_environment, from_tf_config
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard
from tests.distributed.launched import environment_of

LAUNCHERS = ["horovod", "openmpi", "mpich", "torchrun", "tensorflow", "slurm"]
PAIRS = [
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
]
ABOUT_THE_PROCESS = [name for name in LAUNCHERS if name != "slurm"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_from_environment_detects_each_launcher(launcher: str, ranks: int) -> None:
    told = [from_environment(environment_of(launcher, rank, ranks)) for rank in range(ranks)]
    assert told == [Shard(rank, ranks) for rank in range(ranks)]


def test_from_environment_defaults_to_os_environ(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of("mpich", 2, 3).items():
        monkeypatch.setenv(name, value)
    assert from_environment() == Shard(2, 3)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(ABOUT_THE_PROCESS, 2)])
def test_from_environment_raises_when_launchers_disagree(one: str, other: str) -> None:
    same = environment_of(one, 1, 4) | environment_of(other, 1, 4)
    assert from_environment(same) == Shard(1, 4)
    differing = environment_of(one, 1, 4) | environment_of(other, 2, 4)
    with pytest.raises(InvalidArgumentError) as refused:
        from_environment(differing)
    for name in differing:
        assert name in str(refused.value)


@pytest.mark.parametrize("launcher", ABOUT_THE_PROCESS)
def test_inner_launcher_takes_precedence_over_slurm(launcher: str) -> None:
    """With `srun --ntasks-per-node=1 torchrun --nproc-per-node=4`, Slurm's tasks are nodes, not ranks."""
    assert from_environment(environment_of(launcher, 5, 8) | environment_of("slurm", 1, 2)) == Shard(5, 8)


@pytest.mark.parametrize("launcher", ABOUT_THE_PROCESS)
def test_single_rank_in_each_slurm_task_raises(launcher: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"0 of 1, but SLURM_PROCID with SLURM_STEP_NUM_TASKS says 1 of 2"):
        from_environment(environment_of(launcher, 0, 1) | environment_of("slurm", 1, 2))


def test_slurm_batch_script_is_not_a_task() -> None:
    with pytest.raises(
        InvalidArgumentError, match="the rank of this process is unknown: none of HOROVOD_RANK and HOROVOD_SIZE,"
    ):
        from_environment({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    no_tasks = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
    with pytest.raises(
        InvalidArgumentError, match="the rank of this process is unknown: none of HOROVOD_RANK and HOROVOD_SIZE,"
    ):
        from_environment(no_tasks)


def test_slurm_step_uses_its_own_task_count() -> None:
    """In an interactive step, `SLURM_NTASKS` is the number of tasks of the allocation, not of the step."""
    assert from_environment(environment_of("slurm", 0, 1) | {"SLURM_NTASKS": "4"}) == Shard(0, 1)
    assert from_environment({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}) == Shard(1, 4)


def test_from_environment_error_lists_all_launchers() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        from_environment({"PATH": "/bin", "RANK": "", "WORLD_SIZE": ""})
    for name in itertools.chain(*PAIRS, ["TF_CONFIG", "torchrun", "cur_shard=", "shard_count="]):
        assert name in str(refused.value)


@pytest.mark.parametrize(("rank", "ranks"), [pair for pair in PAIRS if "SLURM_PROCID" not in pair])
def test_rank_without_world_size_raises(rank: str, ranks: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{ranks} must be set with {rank}"):
        from_environment({rank: "0"})
    with pytest.raises(InvalidArgumentError, match=f"{rank} must be set with {ranks}"):
        from_environment({ranks: "2"})


@pytest.mark.parametrize(("rank", "ranks"), PAIRS)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("one", "2"), "RANK|PROCID"),
        (("-1", "2"), "must be an int of at least 0"),
        (("+1", "2"), "must be an int of at least 0"),
        (("1.0", "2"), "must be an int of at least 0"),
        ((" 1", "2"), "must be an int of at least 0"),
        (("1_0", "20"), "must be an int of at least 0"),
        (("0x1", "2"), "must be an int of at least 0"),
        (("¹", "2"), "must be an int of at least 0"),
        (("٣", "9"), "must be an int of at least 0"),
        (("1", "2\n"), "must be an int of at least 0"),
        (("1", "9" * 5000), "must be an int of at least 0"),
        (("0", "0"), "must be from 0 to"),
        (("2", "2"), "must be from 0 to"),
        (("5", "2"), "must be from 0 to"),
    ],
)
def test_invalid_rank_variable_raises(rank: str, ranks: str, values: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refused:
        from_environment({rank: values[0], ranks: values[1]})
    assert len(str(refused.value)) < 300


def test_from_tf_config_accepts_text_or_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    text = environment_of("tensorflow", 1, 3)["TF_CONFIG"]
    assert from_tf_config(text) == from_tf_config(json.loads(text)) == Shard(1, 3)
    monkeypatch.setenv("TF_CONFIG", text)
    assert from_tf_config() == Shard(1, 3)


def test_from_tf_config_counts_the_chief_as_rank_0() -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    assert from_tf_config({"cluster": cluster, "task": {"type": "worker", "index": "1"}}) == Shard(2, 3)
    assert from_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}}) == Shard(0, 3)


@pytest.mark.parametrize(
    "config", ["", " ", "{}", '{"cluster": {}}', '{"cluster": null}', '{"task": {"type": "worker"}}']
)
def test_tf_config_without_a_cluster_is_ignored(config: str) -> None:
    with pytest.raises(
        InvalidArgumentError,
        match=r'TF_CONFIG must name a cluster\. It is JSON such as \{"cluster": \{"worker": \["host:port", …\]\},',
    ):
        from_tf_config(config)
    with pytest.raises(
        InvalidArgumentError, match="the rank of this process is unknown: none of HOROVOD_RANK and HOROVOD_SIZE,"
    ):
        from_environment({"TF_CONFIG": config})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "TF_CONFIG must be JSON:"),
        ("[" * 100_000, "TF_CONFIG must be JSON:"),
        ("[1]", "JSON object"),
        (
            '{"cluster": {"worker": ["a:1"]}}',
            r'TF_CONFIG must have a cluster and the task of this process, such as .*, "index": 0\}\}, got \{',
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": "worker"}',
            r'TF_CONFIG must have a cluster and the task of this process, such as .*, "index": 0\}\}, got \{',
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
            r'TF_CONFIG must have a cluster and the task of this process, such as .*, "index": 0\}\}, got \{',
        ),
        (
            '{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}',
            r'TF_CONFIG must have a cluster and the task of this process, such as .*, "index": 0\}\}, got \{',
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "one"}}',
            "must be an int of at least 0",
        ),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}}', "must be an int of at least 0"),
        (
            '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}',
            r"TF_CONFIG names a parameter server \(ps\), which reads no data\. Do not open a reader here",
        ),
    ],
)
def test_invalid_tf_config_raises(config: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        from_tf_config(config)
    with pytest.raises(InvalidArgumentError, match=said):
        from_environment({"TF_CONFIG": config})


@pytest.mark.parametrize(("rank", "size"), PAIRS[:-1])
def test_world_size_1_without_a_rank_is_a_single_process(rank: str, size: str) -> None:
    assert from_environment({size: "1"}) == Shard(0, 1)
    for environment in ({size: "2"}, {rank: "0"}):
        with pytest.raises(InvalidArgumentError, match="because both are needed for the rank"):
            from_environment(environment)


def test_reader_takes_all_rows_when_world_size_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    petastore.write_dataset(str(tmp_path), {"id": np.arange(3)})
    with petastore.make_reader(str(tmp_path), cur_shard="auto") as reader:
        assert sorted(row.id for row in reader) == [0, 1, 2]
