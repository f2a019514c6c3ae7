"""Which rank this process is, as its launcher said in environment variables: to warn where a shard disagrees."""

from __future__ import annotations

import os
import warnings

__all__ = ["rank_in_environment", "warn_of_other_shard"]

_NAMES = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("RANK", "WORLD_SIZE"),
)
"""Pairs of variables, the first that is set counts: Horovod, Open MPI, MPICH and Intel MPI, torchrun."""


def rank_in_environment() -> tuple[int, int, str] | None:
    """Rank, number of ranks, and the variable that said so; None where no launcher set any.

    Example:
        >>> rank_in_environment() is None
        True
    """
    for rank_name, size_name in _NAMES:
        rank, size = os.environ.get(rank_name, ""), os.environ.get(size_name, "")
        if rank.isdecimal() and size.isdecimal():
            return int(rank), int(size), rank_name
    return None


def warn_of_other_shard(cur_shard: int | None, shard_count: int | None, *, stacklevel: int = 3) -> None:
    """Warn where the shard that is asked for is not this process's rank; one rank alone needs no shard.

    Args:
        cur_shard: The shard asked for, or None.
        shard_count: Shards in all, or None.
        stacklevel: As `warnings.warn` takes it: whose line is shown.
    """
    found = rank_in_environment()
    if found is None:
        return
    rank, size, name = found
    asked = (cur_shard, shard_count)
    if asked == (rank, size) or (size == 1 and asked == (None, None)):
        return
    reads = "every rank reads all rows" if asked == (None, None) else "rows may be read twice or not at all"
    warnings.warn(
        f"this process is rank {rank} of {size} ({name}), but cur_shard={cur_shard} and shard_count={shard_count} were "
        f"asked for, so {reads}; give cur_shard={rank}, shard_count={size}",
        UserWarning,
        stacklevel=stacklevel,
    )
