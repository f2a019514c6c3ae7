"""Rank of this process from environment variables of launchers such as torchrun.

Launchers can be nested: `srun` starts a `torchrun` on each node, which starts the ranks. The variables of Slurm then
describe `torchrun`, so they are used only if no other launcher has set variables. The variables of all other launchers
describe this process, and must give the same rank. `agreed` raises an error if launchers and frameworks disagree.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard, whole_number

__all__ = [
    "LAUNCHERS",
    "Claim",
    "agreed",
    "from_environment",
    "from_tf_config",
    "launcher_claims",
    "plain_claims",
    "rank_in_cluster",
    "slurm_claim",
]

_TRAINING: Final = ("chief", "master", "worker")


def rank_in_cluster(cluster: Mapping[str, Any], job: str, task: int, *, said_by: str) -> Shard:
    """Return the shard of a TensorFlow task in its cluster.

    The chief (or master) is rank 0, and the workers follow. An evaluator, which does not train, reads all rows.

    Args:
        cluster: Dict from job name to the addresses of its tasks.
        job: Job of the task.
        task: Number of the task in its job, from 0.
        said_by: Name of the source, for messages.

    Raises:
        InvalidArgumentError: The task is a parameter server, or is not in the cluster.

    Example:
        >>> cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
        >>> rank_in_cluster(cluster, "worker", 1, said_by="TF_CONFIG")
        Shard(index=2, count=3)
    """
    if job == "ps":
        raise InvalidArgumentError(
            f"{said_by} names a parameter server (ps), which reads no data. Do not open a reader here"
        )
    if job == "evaluator":
        return Shard()
    if job not in _TRAINING:
        raise InvalidArgumentError(
            f"the task type in {said_by} must be 'chief', 'master', 'worker', 'evaluator' or 'ps', got {job!r:.80}"
        )
    sizes = {name: _tasks(cluster.get(name, []), name, said_by) for name in _TRAINING}
    if sizes["chief"] and sizes["master"]:
        raise InvalidArgumentError(
            f"{said_by} must have a chief or a master, got both, which are names of the same job"
        )
    task = whole_number(task, name=f"the task's index in {said_by}", least=0)
    if task >= sizes[job]:
        raise InvalidArgumentError(
            f"{said_by} must have a task below {sizes[job]}, the number of tasks of job {job}, got {task}"
        )
    before = sizes["chief"] + sizes["master"] if job == "worker" else 0
    return Shard(before + task, sum(sizes.values()))


def _tasks(addresses: Any, job: str, said_by: str) -> int:
    if not isinstance(addresses, (list, tuple)):
        raise InvalidArgumentError(f"{said_by} must list the addresses of job {job}, got {type(addresses).__name__}")
    return len(addresses)


class _Launcher(NamedTuple):
    name: str
    rank: str
    size: str


LAUNCHERS: Final = (
    _Launcher("horovod", "HOROVOD_RANK", "HOROVOD_SIZE"),
    _Launcher("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    _Launcher("mpich", "PMI_RANK", "PMI_SIZE"),  # also set by Intel MPI and Cray
    _Launcher("torchrun", "RANK", "WORLD_SIZE"),
)
"""Launchers that set two variables for each rank, in the order in which Horovod reads them."""

_SLURM: Final = _Launcher("slurm", "SLURM_PROCID", "SLURM_NTASKS")
_TF_CONFIG: Final = "TF_CONFIG"
_NUMBER: Final = re.compile("[0-9]{1,9}")


def from_environment(environ: Mapping[str, str] | None = None) -> Shard:
    """Return the shard from the environment variables of a launcher.

    The function reads the variables of Horovod, Open MPI, MPICH (and Intel MPI), torchrun and TensorFlow (`TF_CONFIG`).
    If none of these is set, it reads those of Slurm. Variables are set when the process starts and never change: after
    a reset of elastic Horovod, use `from_horovod`.

    Args:
        environ: Mapping of variables; None means `os.environ`.

    Raises:
        InvalidArgumentError: No launcher's variables are set, two launchers report different ranks, or a value is not a
            valid number.

    Example:
        >>> from_environment({"RANK": "1", "WORLD_SIZE": "4"})
        Shard(index=1, count=4)
        >>> from_environment({"RANK": "1"})
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: WORLD_SIZE must be set with RANK, because both are needed for the rank.
            Open the reader after the framework is initialized, set both or neither, or pass cur_shard=… and
            shard_count=…
    """
    environ = os.environ if environ is None else environ
    shard = agreed(list(launcher_claims(environ)), slurm_claim(environ))
    if shard is None:
        names = ", ".join(f"{rank} and {size}" for _, rank, size in (*LAUNCHERS, _SLURM))
        raise InvalidArgumentError(
            f"the rank of this process is unknown: none of {names} or {_TF_CONFIG} is set. Start it with torchrun, "
            "horovodrun, mpirun or srun, or pass numbers as cur_shard=… and shard_count=…"
        )
    return shard


def from_tf_config(config: str | Mapping[str, Any] | None = None) -> Shard:
    """Return the shard of the TensorFlow task that `TF_CONFIG` describes.

    The chief (or master) is rank 0, and the workers follow. An evaluator reads all rows.

    Args:
        config: The value of `TF_CONFIG`, as JSON or as a dict; None reads the variable.

    Raises:
        InvalidArgumentError: The task is a parameter server, which reads no data; or `config` names no task of a
            cluster.

    Example:
        >>> from_tf_config('{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}')
        Shard(index=1, count=2)
    """
    shard = _tf_config_shard(os.environ.get(_TF_CONFIG, "") if config is None else config)
    if shard is None:
        raise InvalidArgumentError(
            'TF_CONFIG must name a cluster. It is JSON such as {"cluster": {"worker": ["host:port", …]}, "task": '
            '{"type": "worker", "index": 0}}'
        )
    return shard


def launcher_claims(environ: Mapping[str, str], overruled: Collection[str] = ()) -> Iterator[Claim]:
    """Yield the rank that each launcher reports in environment variables.

    Slurm is left out.

    Args:
        environ: Environment variables.
        overruled: Names of launchers to ignore.

    Raises:
        InvalidArgumentError: While iterating: variables of a launcher are invalid.
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
    """Return the rank that Slurm reports for a task; None if `srun` did not start it.

    A batch script also has `SLURM_PROCID=0` and a number of tasks, but is not a task.

    Raises:
        InvalidArgumentError: The variables contradict each other, or are out of range.

    Example:
        >>> slurm_claim({"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None
        True
    """
    if "SLURM_JOB_ID" in environ and not environ.keys() & {"SLURM_STEP_ID", "SLURM_STEPID"}:
        return None
    if not environ.get(_SLURM.rank):
        return None
    # In an interactive step, `SLURM_NTASKS` may be the number of tasks of the whole allocation.
    in_step = "SLURM_STEP_NUM_TASKS"
    size = in_step if environ.get(in_step) else _SLURM.size
    return _claim(_SLURM._replace(size=size), environ) if environ.get(size) else None


def plain_claims(environ: Mapping[str, str]) -> list[Claim]:
    """Return the ranks that launchers report in environment variables.

    If there are none, return the rank that Slurm reports. Invalid variables are ignored.
    """
    claims: list[Claim] = []
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
        rank = "0"  # some job runners set WORLD_SIZE for every program; if it is 1, the rank is 0
    if not rank or not size:
        there, missing = (rank_name, size_name) if rank else (size_name, rank_name)
        raise InvalidArgumentError(
            f"{missing} must be set with {there}, because both are needed for the rank. Open the reader after the "
            "framework is initialized, set both or neither, or pass cur_shard=… and shard_count=…"
        )
    shard_index, shard_count = _number(rank, rank_name), _number(size, size_name)
    if shard_index >= shard_count:
        raise InvalidArgumentError(
            f"{rank_name} must be from 0 to {size_name} - 1, got {rank_name}={rank} and {size_name}={size}"
        )
    return Claim(Shard(shard_index, shard_count), f"{rank_name} with {size_name}")


def _number(text: str, name: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise InvalidArgumentError(f"{name} must be an int of at least 0, got {text!r:.80}")
    return int(text)


def _tf_config_shard(config: str | Mapping[str, Any]) -> Shard | None:
    """Return the task's shard from `TF_CONFIG`.

    Return None without a cluster, which TensorFlow treats as a single process.
    """
    loaded = _parsed(config) if isinstance(config, str) else config
    cluster = loaded.get("cluster") or {}
    if not cluster:
        return None
    task = loaded.get("task")
    if not isinstance(cluster, Mapping) or not isinstance(task, Mapping) or not {"type", "index"} <= task.keys():
        raise InvalidArgumentError(
            'TF_CONFIG must have a cluster and the task of this process, such as {"cluster": {"worker": ["host:port", '
            f'…]}}, "task": {{"type": "worker", "index": 0}}}}, got {dict(loaded)!r:.200}'
        )
    index = task["index"]
    if isinstance(index, str):  # TensorFlow accepts a number as text, too
        index = _number(index, "the task's index in TF_CONFIG")
    return rank_in_cluster(cluster, task["type"], index, said_by=_TF_CONFIG)


def _parsed(text: str) -> Mapping[str, Any]:
    if not text.strip():
        return {}
    try:
        loaded = json.loads(text)
    except (ValueError, RecursionError) as problem:  # RecursionError: nested too deeply
        raise InvalidArgumentError(f"TF_CONFIG must be JSON: {problem}") from None
    if not isinstance(loaded, dict):
        raise InvalidArgumentError(f"TF_CONFIG must be a JSON object, got {type(loaded).__name__}")
    return loaded


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Rank of this process, as a launcher or framework reports it."""

    shard: Shard
    """Rank, and number of ranks."""

    by: str
    """Source of the claim, for messages: a framework, or environment variables."""

    overrules: frozenset[str] = frozenset()
    """Names of launchers whose variables are ignored if this claim exists.

    The variables of these launchers describe another process.
    """

    def __str__(self) -> str:
        return f"{self.by} says {self.shard.index} of {self.shard.count}"

    def allows(self, shard: Shard) -> bool:
        """Return whether a reader of this rank may have this shard.

        The shard may be the rank itself, or the rank's coordinate along one dimension of a device mesh. Ranks that
        differ only in other dimensions of the mesh then read the same rows.

        Example:
            >>> rank = Claim(Shard(2, 4), "torch.distributed")  # of a mesh of 2 × 2, in its second row
            >>> [rank.allows(shard) for shard in (Shard(2, 4), Shard(1, 2), Shard(0, 2), Shard(0, 1))]
            [True, True, True, True]
            >>> rank.allows(Shard(0, 4)), rank.allows(Shard(2, 3)), rank.allows(Shard(2, 8))
            (False, False, False)
        """
        longest, left = divmod(self.shard.count, shard.count)
        return left == 0 and any(
            self.shard.index // run % shard.count == shard.index for run in range(1, longest + 1) if longest % run == 0
        )


def agreed(claims: Sequence[Claim], around: Claim | None = None) -> Shard | None:
    """Return the shard that all sources report; None if no source reports one.

    Args:
        claims: Claims that must have the same numbers.
        around: Claim of a launcher that may have started the launcher of this process, such as `srun` for a `torchrun`
            on each node. Its shard is used only if `claims` is empty. An error is raised if it reports several ranks
            and `claims` report a world size of 1.

    Raises:
        InvalidArgumentError: Two sources disagree; the message names both.

    Example:
        >>> agreed([Claim(Shard(1, 2), "RANK with WORLD_SIZE"), Claim(Shard(1, 2), "torch.distributed")])
        Shard(index=1, count=2)
        >>> agreed([Claim(Shard(0, 1), "Horovod"), Claim(Shard(1, 2), "torch.distributed")])
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: all frameworks and variables must agree on the rank of this process, got
            Horovod says 0 of 1, but torch.distributed says 1 of 2. Unset the stale variables, or pass the rank that
            trains, such as cur_shard=petastore.distributed.from_torch(), or numbers as cur_shard=… and shard_count=…
    """
    if not claims:
        return None if around is None else around.shard
    first = claims[0]
    others = [claim for claim in claims[1:] if claim.shard != first.shard]
    if around is not None and first.shard.count == 1 < around.shard.count:
        others.append(around)
    if others:
        raise InvalidArgumentError(
            f"all frameworks and variables must agree on the rank of this process, got {first}, but {others[0]}. Unset "
            "the stale variables, or pass the rank that trains, such as cur_shard=petastore.distributed.from_torch(), "
            "or numbers as cur_shard=… and shard_count=…"
        )
    return first.shard
