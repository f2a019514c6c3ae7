"""Launchers say in the environment which rank a process is; what cannot be is refused, by name."""

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
def test_each_launcher_is_understood(launcher: str, ranks: int) -> None:
    told = [from_environment(environment_of(launcher, rank, ranks)) for rank in range(ranks)]
    assert told == [Shard(rank, ranks) for rank in range(ranks)]


def test_it_is_this_process_that_is_asked_unless_another_environment_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment_of("mpich", 2, 3).items():
        monkeypatch.setenv(name, value)
    assert from_environment() == Shard(2, 3)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(ABOUT_THE_PROCESS, 2)])
def test_two_launchers_must_agree_and_are_named_where_they_do_not(one: str, other: str) -> None:
    same = environment_of(one, 1, 4) | environment_of(other, 1, 4)
    assert from_environment(same) == Shard(1, 4)
    differing = environment_of(one, 1, 4) | environment_of(other, 2, 4)
    with pytest.raises(InvalidArgumentError) as refused:
        from_environment(differing)
    for name in differing:
        assert name in str(refused.value)


@pytest.mark.parametrize("launcher", ABOUT_THE_PROCESS)
def test_a_launcher_that_slurm_started_on_each_node_knows_better(launcher: str) -> None:
    """`srun --ntasks-per-node=1 torchrun --nproc-per-node=4`: Slurm's tasks are nodes."""
    assert from_environment(environment_of(launcher, 5, 8) | environment_of("slurm", 1, 2)) == Shard(5, 8)


@pytest.mark.parametrize("launcher", ABOUT_THE_PROCESS)
def test_one_that_is_alone_in_each_of_slurms_tasks_is_refused(launcher: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"0 of 1, but SLURM_PROCID with SLURM_STEP_NUM_TASKS says 1 of 2"):
        from_environment(environment_of(launcher, 0, 1) | environment_of("slurm", 1, 2))


def test_a_batch_script_of_slurm_is_none_of_the_tasks_that_it_may_start() -> None:
    with pytest.raises(InvalidArgumentError, match="no launcher says"):
        from_environment({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    no_tasks = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}
    with pytest.raises(InvalidArgumentError, match="no launcher says"):
        from_environment(no_tasks)


def test_a_step_of_slurm_counts_its_own_tasks() -> None:
    """In an interactive step `SLURM_NTASKS` is what the allocation may start."""
    assert from_environment(environment_of("slurm", 0, 1) | {"SLURM_NTASKS": "4"}) == Shard(0, 1)
    assert from_environment({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}) == Shard(1, 4)


def test_where_no_launcher_says_anything_all_are_named() -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        from_environment({"PATH": "/bin", "RANK": "", "WORLD_SIZE": ""})
    for name in itertools.chain(*PAIRS, ["TF_CONFIG", "torchrun", "cur_shard=", "shard_count="]):
        assert name in str(refused.value)


@pytest.mark.parametrize(("rank", "ranks"), [pair for pair in PAIRS if "SLURM_PROCID" not in pair])
def test_half_a_pair_is_refused(rank: str, ranks: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{rank} is set and {ranks} is not"):
        from_environment({rank: "0"})
    with pytest.raises(InvalidArgumentError, match=f"{ranks} is set and {rank} is not"):
        from_environment({ranks: "2"})


@pytest.mark.parametrize(("rank", "ranks"), PAIRS)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (("one", "2"), "RANK|PROCID"),
        (("-1", "2"), "whole number"),
        (("+1", "2"), "whole number"),
        (("1.0", "2"), "whole number"),
        ((" 1", "2"), "whole number"),
        (("1_0", "20"), "whole number"),
        (("0x1", "2"), "whole number"),
        (("¹", "2"), "whole number"),
        (("٣", "9"), "whole number"),
        (("1", "2\n"), "whole number"),
        (("1", "9" * 5000), "whole number"),
        (("0", "0"), "numbered from 0"),
        (("2", "2"), "numbered from 0"),
        (("5", "2"), "numbered from 0"),
    ],
)
def test_nonsense_is_refused_shortly(rank: str, ranks: str, values: tuple[str, str], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said) as refused:
        from_environment({rank: values[0], ranks: values[1]})
    assert len(str(refused.value)) < 300


def test_a_tf_config_is_text_or_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    text = environment_of("tensorflow", 1, 3)["TF_CONFIG"]
    assert from_tf_config(text) == from_tf_config(json.loads(text)) == Shard(1, 3)
    monkeypatch.setenv("TF_CONFIG", text)
    assert from_tf_config() == Shard(1, 3)


def test_a_chief_comes_before_workers_and_an_index_may_be_text() -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
    assert from_tf_config({"cluster": cluster, "task": {"type": "worker", "index": "1"}}) == Shard(2, 3)
    assert from_tf_config({"cluster": cluster, "task": {"type": "chief", "index": 0}}) == Shard(0, 3)


@pytest.mark.parametrize(
    "config", ["", " ", "{}", '{"cluster": {}}', '{"cluster": null}', '{"task": {"type": "worker"}}']
)
def test_a_tf_config_without_a_cluster_says_nothing(config: str) -> None:
    with pytest.raises(InvalidArgumentError, match="names no cluster"):
        from_tf_config(config)
    with pytest.raises(InvalidArgumentError, match="no launcher says"):
        from_environment({"TF_CONFIG": config})


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "JSON object"),
        ('{"cluster": {"worker": ["a:1"]}}', "which task"),
        ('{"cluster": {"worker": ["a:1"]}, "task": "worker"}', "which task"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}', "which task"),
        ('{"cluster": ["a:1"], "task": {"type": "worker", "index": 0}}', "which task"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "one"}}', "whole number"),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}}', "whole number"),
        ('{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}', "no reader"),
    ],
)
def test_a_tf_config_that_cannot_be_is_refused(config: str, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        from_tf_config(config)
    with pytest.raises(InvalidArgumentError, match=said):
        from_environment({"TF_CONFIG": config})


@pytest.mark.parametrize(("rank", "size"), PAIRS[:-1])
def test_size_of_one_without_a_rank_is_one_process_alone(rank: str, size: str) -> None:
    assert from_environment({size: "1"}) == Shard(0, 1)
    for environment in ({size: "2"}, {rank: "0"}):
        with pytest.raises(InvalidArgumentError, match="so nobody knows which of how many ranks this is"):
            from_environment(environment)


def test_reader_takes_all_rows_when_world_size_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "1")
    petastore.write_dataset(str(tmp_path), {"id": np.arange(3)})
    with petastore.make_reader(str(tmp_path), cur_shard="auto") as reader:
        assert sorted(row.id for row in reader) == [0, 1, 2]
