"""Which rank launchers say that this process is, in variables of its environment. Pure but for the default.

Launchers run inside each other: `srun` starts a `torchrun` on each node, which starts the ranks. So Slurm's numbers
count only where nobody else says anything. All others are about this process, and must agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from petastore.distributed.claim import Claim, agreed
from petastore.distributed.cluster import rank_in_cluster
from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["LAUNCHERS", "from_environment", "from_tf_config", "launcher_claims", "plain_claims", "slurm_claim"]


class _Launcher(NamedTuple):
    name: str
    rank: str
    size: str


LAUNCHERS: Final = (
    _Launcher("horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    _Launcher("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpich", "PMI_RANK", "PMI_SIZE"),  # Intel MPI and Cray, too
    _Launcher("torchrun", "RANK", "WORLD_SIZE"),
)
"""Launchers that give each rank two variables, in the order in which Horovod looks at them."""

_SLURM: Final = _Launcher("slurm", "SLURM_PROCID", "SLURM_NTASKS")
_TF_CONFIG: Final = "TF_CONFIG"
_TELLING: Final = (*(launcher.size for launcher in LAUNCHERS), _SLURM.rank, _TF_CONFIG)
_NUMBER: Final = re.compile("[0-9]{1,9}")


def from_environment(environ: Mapping[str, str] | None = None) -> Shard:
    """The shard of the rank that a launcher's variables name.

    It looks for those of Horovod, Open MPI, MPICH (and Intel MPI), torchrun, TensorFlow (`TF_CONFIG`) and, where there
    are no others, Slurm. In Python they are what they were when the process started: after a reset of elastic Horovod
    ask `from_horovod`.

    Args:
        environ: Names to values; None is `os.environ`.

    Raises:
        InvalidArgumentError: No launcher says anything, two disagree, or a value is no such number.

    Example:
        >>> from_environment({"RANK": "1", "WORLD_SIZE": "4"})
        Shard(index=1, count=4)
        >>> from_environment({"RANK": "1"})
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: RANK is set and WORLD_SIZE is not, so nobody knows which of how many
        ranks this is; make the reader after the engine is initialised, set both or neither, or give cur_shard=… and
        shard_count=…
    """
    environ = os.environ if environ is None else environ
    shard = agreed(list(launcher_claims(environ)), slurm_claim(environ))
    if shard is None:
        names = ", ".join(f"{rank} and {size}" for _, rank, size in (*LAUNCHERS, _SLURM))
        raise InvalidArgumentError(
            f"no launcher says which rank this process is: none of {names} or {_TF_CONFIG} is set; start it with "
            "torchrun, horovodrun, mpirun or srun, or give numbers as cur_shard=… and shard_count=…"
        )
    return shard


def from_tf_config(config: str | Mapping[str, Any] | None = None) -> Shard:
    """The shard of a task of TensorFlow: the chief (or master) is rank 0, and workers follow it.

    An evaluator has all rows.

    Args:
        config: What `TF_CONFIG` is: JSON, or what it says. None is the variable.

    Raises:
        InvalidArgumentError: It is a parameter server's, which has no reader; or it says no task of a cluster.

    Example:
        >>> from_tf_config('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}')
        Shard(index=1, count=2)
    """
    shard = _tf_config_shard(os.environ.get(_TF_CONFIG, "") if config is None else config)
    if shard is None:
        raise InvalidArgumentError(
            'TF_CONFIG names no cluster; it is JSON such as {"cluster": {"worker": ["host:port", …]}, "task": {"type": '
            '"worker", "index": 0}}'
        )
    return shard


def launcher_claims(environ: Mapping[str, str], overruled: Collection[str] = ()) -> Iterator[Claim]:
    """What launchers say, in order; Slurm is no such launcher.

    Args:
        environ: Names to values.
        overruled: Names of launchers that are not asked.

    Raises:
        InvalidArgumentError: While iterating: what one of them says cannot be.
    """
    for launcher in LAUNCHERS:
        if launcher.name not in overruled:
            claim = _claim(launcher, environ)
            if claim is not None:
                yield claim
    shard = _tf_config_shard(environ.get(_TF_CONFIG, ""))
    if shard is not None:
        yield Claim(shard, _TF_CONFIG)


def slurm_claim(environ: Mapping[str, str]) -> Claim | None:
    """What Slurm says of a task that `srun` started; None elsewhere.

    The batch script itself is given `SLURM_PROCID=0` and the number of tasks that it may start, and is no task.

    Raises:
        InvalidArgumentError: What it says cannot be.

    Example:
        >>> slurm_claim({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None
        True
    """
    if "SLURM_JOB_ID" in environ and not environ.keys() & {"SLURM_STEP_ID", "SLURM_STEPID"}:
        return None
    if not environ.get(_SLURM.rank):
        return None
    in_step = "SLURM_STEP_NUM_TASKS"  # `SLURM_NTASKS` may be the allocation's, in an interactive step
    size = in_step if environ.get(in_step) else _SLURM.size
    return _claim(_SLURM._replace(size=size), environ) if environ.get(size) else None


def plain_claims(environ: Mapping[str, str]) -> list[Claim]:
    """What is said without any doubt by launchers, or else by Slurm; what cannot be is nothing."""
    claims: list[Claim] = []
    # Each reader of a program that nobody launched comes here: a look at a variable takes a microsecond.
    if not any(name in environ for name in _TELLING):
        return claims
    with contextlib.suppress(InvalidArgumentError):
        claims.extend(launcher_claims(environ))
    with contextlib.suppress(InvalidArgumentError):
        if not claims and (claim := slurm_claim(environ)) is not None:
            claims.append(claim)
    return claims


def _claim(launcher: _Launcher, environ: Mapping[str, str]) -> Claim | None:
    _, rank_name, size_name = launcher
    rank, size = environ.get(rank_name), environ.get(size_name)
    if not rank and not size:
        return None
    if not rank and size == "1":
        rank = "0"  # some job runners set the size for every program: alone, it is the one rank there can be
    if not rank or not size:
        there, missing = (rank_name, size_name) if rank else (size_name, rank_name)
        raise InvalidArgumentError(
            f"{there} is set and {missing} is not, so nobody knows which of how many ranks this is; make the reader "
            "after the engine is initialised, set both or neither, or give cur_shard=… and shard_count=…"
        )
    shard_index, shard_count = _number(rank, rank_name), _number(size, size_name)
    if shard_index >= shard_count:
        raise InvalidArgumentError(f"{rank_name}={rank} and {size_name}={size} cannot be: ranks are numbered from 0")
    return Claim(Shard(shard_index, shard_count), f"{rank_name} with {size_name}")


def _number(text: str, name: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise InvalidArgumentError(f"{name}={text!r:.80}, but it must be a whole number of at least 0")
    return int(text)


def _tf_config_shard(config: str | Mapping[str, Any]) -> Shard | None:
    """The task's shard; None where there is no cluster, which TensorFlow takes for one process alone."""
    said = _parsed(config) if isinstance(config, str) else config
    cluster = said.get("cluster") or {}
    if not cluster:
        return None
    task = said.get("task")
    if not isinstance(cluster, Mapping) or not isinstance(task, Mapping) or not {"type", "index"} <= task.keys():
        raise InvalidArgumentError(
            "TF_CONFIG has a cluster, but does not say which task of it this process is; it needs "
            '"task": {"type": "worker", "index": 0}'
        )
    index = task["index"]
    if isinstance(index, str):  # TensorFlow takes the text of a number, too
        index = _number(index, "the task's index in TF_CONFIG")
    return rank_in_cluster(cluster, task["type"], index, said_by=_TF_CONFIG)


def _parsed(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as problem:  # the latter where it is nested without end
        raise InvalidArgumentError(f"TF_CONFIG is no JSON: {problem}") from None
    if not isinstance(said, dict):
        raise InvalidArgumentError(f"TF_CONFIG must be a JSON object, but is a {type(said).__name__}")
    return said
