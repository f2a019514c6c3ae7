"""What somebody says about which rank this process is, and that all who say so agree. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["Claim", "agreed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """One answer to who this process is."""

    shard: Shard
    """The rank, and how many there are."""

    by: str
    """Who says so, for people: an engine, or variables of the environment."""

    overrules: frozenset[str] = frozenset()
    """Launchers whose variables mean nothing beside this: they are older than it, or say who started something else."""

    def __str__(self) -> str:
        return f"{self.by} says {self.shard.index} of {self.shard.count}"

    def allows(self, shard: Shard) -> bool:
        """Whether this rank's place in some division of all ranks is this shard's.

        That is its own place; or one along a dimension of a mesh, where those that differ in other dimensions read the
        same rows: ranks count through the shards in runs of equal length, again and again.

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
    """The shard that all claims name; None where nobody claims anything.

    Args:
        claims: Whose numbers must be the same.
        around: Who may have started the one that started this process, such as `srun` a `torchrun` on each node. Its
            numbers count where there are no others; but several tasks, in each of which somebody is alone, are a job
            whose ranks do not know each other.

    Raises:
        InvalidArgumentError: Two of them disagree; both are named.

    Example:
        >>> agreed([Claim(Shard(1, 2), "RANK with WORLD_SIZE"), Claim(Shard(1, 2), "torch.distributed")])
        Shard(index=1, count=2)
        >>> agreed([Claim(Shard(0, 1), "Horovod"), Claim(Shard(1, 2), "torch.distributed")])
        Traceback (most recent call last):
        petastore.errors.InvalidArgumentError: which rank is this process? Horovod says 0 of 1, but torch.distributed
        says 1 of 2; unset what is left over, or give the one that trains as a value, such as
        cur_shard=petastore.distributed.from_torch(), or numbers as cur_shard=… and shard_count=…
    """
    if not claims:
        return None if around is None else around.shard
    first = claims[0]
    others = [claim for claim in claims[1:] if claim.shard != first.shard]
    if around is not None and first.shard.count == 1 < around.shard.count:
        others.append(around)
    if others:
        raise InvalidArgumentError(
            f"which rank is this process? {first}, but {others[0]}; unset what is left over, or give the one that "
            "trains as a value, such as cur_shard=petastore.distributed.from_torch(), or numbers as cur_shard=… and "
            "shard_count=…"
        )
    return first.shard
