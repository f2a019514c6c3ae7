"""Loss spikes: find them in a training log, and rank rows, files and labels.

The ranking shows the rows, files and labels that occur in spikes.
"""

from __future__ import annotations

from petastore.tracing.losses import Losses, read_losses
from petastore.tracing.spikes import Ranked, SpikeRanking, find_spikes, rank_spikes

__all__ = ["Losses", "Ranked", "SpikeRanking", "find_spikes", "rank_spikes", "read_losses"]
