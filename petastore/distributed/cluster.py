"""TensorFlow's clusters: which rank a task of a job has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard, whole_number

__all__ = ["rank_in_cluster"]

_TRAINING: Final = ("chief", "master", "worker")


def rank_in_cluster(cluster: Mapping[str, Any], job: str, task: int, *, said_by: str) -> Shard:
    """The shard of a task: the chief (or master) is rank 0, and workers follow it.

    An evaluator, which trains with nobody, has all rows.

    Args:
        cluster: Name of a job to the addresses of its tasks.
        job: The task's job.
        task: Its number in this job, from 0.
        said_by: Whose words these are, for people.

    Raises:
        InvalidArgumentError: It is a parameter server, or there is no such task.

    Example:
        >>> cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
        >>> rank_in_cluster(cluster, "worker", 1, said_by="TF_CONFIG")
        Shard(index=2, count=3)
    """
    if job == "ps":
        raise InvalidArgumentError(
            f"{said_by} says that this is a parameter server (ps): it trains on no rows, so open no reader"
        )
    if job == "evaluator":
        return Shard()
    if job not in _TRAINING:
        raise InvalidArgumentError(
            f"{said_by} has the job {job!r:.80}, which is none of chief, master, worker, evaluator, ps"
        )
    sizes = {name: _tasks(cluster.get(name, []), name, said_by) for name in _TRAINING}
    if sizes["chief"] and sizes["master"]:
        raise InvalidArgumentError(
            f"{said_by} has a chief and a master; they are two names of one job, so leave one out"
        )
    task = whole_number(task, name=f"the task's index in {said_by}", least=0)
    if task >= sizes[job]:
        raise InvalidArgumentError(f"{said_by} says that this is task {task} of the job {job}, which has {sizes[job]}")
    before = sizes["chief"] + sizes["master"] if job == "worker" else 0
    return Shard(before + task, sum(sizes.values()))


def _tasks(addresses: Any, job: str, said_by: str) -> int:
    if not isinstance(addresses, (list, tuple)):
        raise InvalidArgumentError(
            f"{said_by} must list the addresses of the job {job}, but has a {type(addresses).__name__}"
        )
    return len(addresses)
