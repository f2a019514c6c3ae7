"""Ranks that launchers and frameworks report for this process, and the check that these ranks agree. No I/O."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from petastore.errors import InvalidArgumentError
from petastore.plan.request import Shard

__all__ = ["Claim", "agreed"]


@dataclasses.dataclass(frozen=True, slots=True)
class Claim:
    """Rank of this process, as a launcher or framework reports it."""

    shard: Shard
    """Rank, and number of ranks."""

    by: str
    """Source of the claim, for messages: an engine, or environment variables."""

    overrules: frozenset[str] = frozenset()
    """Launchers whose variables are ignored if this one is present, because they describe another process."""

    def __str__(self) -> str:
        return f"{self.by} says {self.shard.index} of {self.shard.count}"

    def allows(self, shard: Shard) -> bool:
        """Return whether this rank may have this shard in a division of all ranks.

        The shard may be the rank itself, or the rank's coordinate along a dimension of a device mesh, where ranks that
        differ only in other dimensions read the same rows.

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
            on each node. This claim is used only if there are no other claims.

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
