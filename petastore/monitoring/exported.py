"""Metrics of a reader or loader, as all exporters publish them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from petastore.monitoring.activity import STAGES
from petastore.monitoring.diagnosis import Counters, Diagnosis

__all__ = ["Metric", "Source", "metrics_of"]


class Source(Protocol):
    """Interface of a `Reader`, or of a loader over a reader."""

    def diagnosis(self) -> Diagnosis:
        """Return the diagnosis."""


class Metric(NamedTuple):
    """One metric; its name contains the unit, as in Prometheus."""

    name: str
    help: str
    value: float
    labels: dict[str, str]
    is_counter: bool
    """Whether the value only grows during an iteration of the reader, and starts at 0 with the next one."""


def metrics_of(source: Source) -> list[Metric]:
    """Return the metrics of a reader or loader now.

    Example:
        >>> class Loader:
        ...     def diagnosis(self):
        ...         return Diagnosis(None, (), Counters(rows=7))
        >>> [metric.value for metric in metrics_of(Loader()) if metric.name == "petastore_rows"]
        [7.0]
    """
    found = source.diagnosis()
    counters = found.counters
    rank = {"rank": str(counters.rank)}
    waits = [
        Metric(
            "petastore_wait_seconds",
            "Time that training waited for data, by stage",
            getattr(counters, f"wait_{stage}_seconds"),
            {**rank, "stage": stage},
            is_counter=True,
        )
        for stage in STAGES
    ]
    return [
        *waits,
        Metric("petastore_elapsed_seconds", "Time of training and waiting", counters.elapsed_seconds, rank, True),
        Metric("petastore_rows", "Rows handed over", float(counters.rows), rank, True),
        Metric("petastore_row_groups_loaded", "Loaded row groups", float(counters.row_groups_loaded), rank, True),
        Metric(
            "petastore_wait_ratio", "Share of the time that training waited for data", found.wait_share, rank, False
        ),
        Metric(
            "petastore_ready_spans",
            "Mean number of spans that were ready when training requested one",
            counters.ready_spans_mean,
            rank,
            is_counter=False,
        ),
        *_of_storage(source, counters),
    ]


def _of_storage(source: Any, counters: Counters) -> list[Metric]:
    """Return the counters of storage and caches, of `Reader.diagnostics`."""
    diagnostics = getattr(getattr(source, "reader", source), "diagnostics", {})
    return [
        Metric(f"petastore_{name}", f"{name} of Reader.diagnostics", float(value), {"rank": str(counters.rank)}, True)
        for name, value in diagnostics.items()
        if name.startswith(("storage_", "cache_", "footer_"))
    ]
