"""A converter's loader is warned of a shard that is not this process's rank, as Petastorm's converter does."""

from __future__ import annotations

import warnings

from petastore.distributed.current import launched_as
from petastore.plan.request import Shard

__all__ = ["warn_of_other_shard"]


def warn_of_other_shard(shard: Shard, *, stacklevel: int = 3) -> None:
    """Warn where the shard that is asked for is not this process's rank; all rows are anybody's to ask for.

    Args:
        shard: The shard asked for.
        stacklevel: As `warnings.warn` takes it: whose line is shown.
    """
    launched = launched_as()
    if launched is None or shard.count == 1 or shard == launched.shard:
        return
    warnings.warn(
        f"this process is rank {launched.shard.index} of {launched.shard.count} ({launched.by}), but "
        f"cur_shard={shard.index} and shard_count={shard.count} were asked for, so rows may be read twice or not at "
        'all; give cur_shard="auto"',
        UserWarning,
        stacklevel=stacklevel,
    )
